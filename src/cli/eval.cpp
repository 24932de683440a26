// galvani eval: logits of given ids, for anyone who wants to compare engines.
#include <algorithm>
#include <cstdio>
#include <limits>

#include "cli/cli.h"
#include "cli/interrupt.h"
#include "core/error.h"
#include "engine/runner.h"
#include "formats/npy.h"

namespace galvani::cli {
namespace {

struct EvalFlags {
  ModelFlags model;
  std::string ids, logits;
};

// Rows of logits held at once: about 64 MB.
int64_t chunk_rows(int64_t vocab, int batch) { return std::clamp<int64_t>((16 << 20) / vocab, 1, batch); }

Status eval(const EvalFlags& flags) {
  GALVANI_TRY(LoadOptions options, flags.model.load_options());
  GALVANI_TRY(const std::vector<int32_t> ids, formats::read_npy_ids(flags.ids, std::numeric_limits<int32_t>::max()));
  if (ids.empty()) return fail(ErrorCode::kInvalidArgument, "{} holds no ids; give at least one", flags.ids);
  if (options.context == 0) options.context = static_cast<int64_t>(ids.size());
  if (static_cast<int64_t>(ids.size()) > options.context)
    return fail(ErrorCode::kOutOfRange, "{} holds {} ids, the context {}; raise -c or leave it out", flags.ids,
                ids.size(), options.context);
  GALVANI_TRY(const auto runner, engine::Runner::load(options));
  const EngineInfo& info = runner->info();
  if (static_cast<int64_t>(ids.size()) > info.model_context)
    return fail(ErrorCode::kOutOfRange, "{} holds {} ids, the model was made for {} positions", flags.ids, ids.size(),
                info.model_context);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= info.vocab)
      return fail(ErrorCode::kOutOfRange, "{}: id {} at index {} is outside the vocabulary; allowed: 0 to {}",
                  flags.ids, ids[i], i, info.vocab - 1);
  }
  catch_interrupts();
  GALVANI_TRY(auto out,
              formats::NpyWriter::create(flags.logits, Shape({static_cast<int64_t>(ids.size()), info.vocab})));
  GALVANI_TRY_VOID(runner->all_logits(ids, chunk_rows(info.vocab, flags.model.batch),
                                      [&](int64_t, int64_t count, const float* rows) -> Status {
                                        if (interrupted()) return fail(ErrorCode::kCancelled, "interrupted");
                                        return out.append(std::span(rows, static_cast<size_t>(count * info.vocab)));
                                      }));
  GALVANI_TRY_VOID(out.finish());
  std::fprintf(stderr, "%zu positions x %lld logits (float32) written to %s; %s, %d threads, act %s, kv %s\n",
               ids.size(), static_cast<long long>(info.vocab), flags.logits.c_str(), info.device.c_str(), info.threads,
               info.act.c_str(), info.kv.c_str());
  return {};
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto flags = std::make_shared<EvalFlags>();
  CLI::App* verb = app.add_subcommand("eval", "logits of given token ids");
  flags->model.add_to(*verb, true);
  verb->add_option("--ids", flags->ids, "1-D .npy of uint16, int32 or int64 token ids")->required();
  verb->add_option("--logits", flags->logits, "where to write float32 [n, vocab] as .npy")->required();
  verb->callback([flags, &action] {
    action = [flags] {
      const Status done = eval(*flags);
      return done ? kYes : report(done.error());
    };
  });
}

}  // namespace galvani::cli
