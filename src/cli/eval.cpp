// galvani eval: perplexity over windows of ids, distance from another checkpoint, or the logits themselves.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>

#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/progress_bar.h"
#include "cli/text_input.h"
#include "core/error.h"
#include "engine/evaluate.h"
#include "engine/expert_use.h"
#include "engine/forced_arms.h"
#include "formats/atomic_file.h"
#include "formats/npy.h"

namespace galvani::cli {
namespace {

using nlohmann::ordered_json;

struct EvalFlags {
  ModelFlags model;
  std::string ids, text, logits, against, json, convention = "whole";
  int64_t window = 512, windows = 0;
  bool count = false;
  CLI::Option* json_option = nullptr;
};

// Rows of logits held at once: about 64 MB.
int64_t chunk_rows(int64_t vocab, int batch) { return std::clamp<int64_t>((16 << 20) / vocab, 1, batch); }

Status check_finite(int64_t not_finite, int64_t positions) {
  if (not_finite == 0) return {};
  return fail(ErrorCode::kOutOfRange,
              "{} of {} positions have logits that are not finite numbers; if --device cpu --act f32 has none, the "
              "arithmetic is too narrow for this model, else its weights are damaged",
              not_finite, positions);
}

Status write_logits(const EvalFlags& flags) {
  if (flags.ids.empty()) return fail(ErrorCode::kInvalidArgument, "--ids is required with --logits");
  GALVANI_TRY(LoadOptions options, flags.model.load_options());
  GALVANI_TRY(const std::vector<int32_t> ids, formats::read_npy_ids(flags.ids, std::numeric_limits<int32_t>::max()));
  if (ids.empty()) return fail(ErrorCode::kInvalidArgument, "{} holds no ids; give at least one", flags.ids);
  if (options.context == 0) options.context = static_cast<int64_t>(ids.size());
  if (static_cast<int64_t>(ids.size()) > options.context)
    return fail(ErrorCode::kInvalidArgument, "{} holds {} ids, the context {}; raise -c or leave it out", flags.ids,
                ids.size(), options.context);
  GALVANI_TRY_VOID(check_output("--logits", flags.logits, {options.model, flags.ids}));
  GALVANI_TRY(const auto runner, engine::Runner::load(options));
  const EngineInfo& info = runner->info();
  if (static_cast<int64_t>(ids.size()) > info.model_context)
    return fail(ErrorCode::kOutOfRange, "{} holds {} ids, the model was made for {} positions; cut them to that many",
                flags.ids, ids.size(), info.model_context);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (ids[i] < 0 || ids[i] >= info.vocab)
      return fail(ErrorCode::kOutOfRange, "{}: id {} at index {} is outside the vocabulary; allowed: 0 to {}",
                  flags.ids, ids[i], i, info.vocab - 1);
  }
  catch_interrupts();
  GALVANI_TRY(auto out,
              formats::NpyWriter::create(flags.logits, Shape({static_cast<int64_t>(ids.size()), info.vocab})));
  int64_t not_finite = 0;
  GALVANI_TRY_VOID(runner->all_logits(ids, chunk_rows(info.vocab, flags.model.batch),
                                      [&](int64_t, int64_t count, const float* rows) -> Status {
                                        if (interrupted()) return fail(ErrorCode::kCancelled, "interrupted");
                                        for (int64_t r = 0; r < count; ++r)
                                          not_finite += !std::all_of(rows + r * info.vocab, rows + (r + 1) * info.vocab,
                                                                     [](float x) { return std::isfinite(x); });
                                        return out.append(std::span(rows, static_cast<size_t>(count * info.vocab)));
                                      }));
  GALVANI_TRY_VOID(out.finish());
  std::fprintf(stderr, "%zu positions x %lld logits (float32) written to %s; %s, %d threads, act %s, kv %s%s\n",
               ids.size(), static_cast<long long>(info.vocab), flags.logits.c_str(), info.device.c_str(), info.threads,
               info.act.c_str(), info.kv.c_str(), engine::forced_arms_text(info.arms).c_str());
  return check_finite(not_finite, static_cast<int64_t>(ids.size()));
}

// The ids to score, and BOS where the convention puts it at each window's start.
Result<std::vector<int32_t>> read_ids(const EvalFlags& flags, engine::EvalOptions& options) {
  if (flags.ids.empty() == flags.text.empty())
    return fail(ErrorCode::kInvalidArgument, "give either --ids IDS.npy or --text FILE");
  if (!flags.ids.empty()) return formats::read_npy_ids(flags.ids, std::numeric_limits<int32_t>::max());
  GALVANI_TRY(const std::string path, flags.model.path());
  GALVANI_TRY(const std::string text, read_text_file(flags.text));
  GALVANI_TRY(const ModelText model, ModelText::open(path, flags.model.tokenizer));
  GALVANI_TRY(const auto nothing, model.tokenizer->encode(""));
  if (!nothing.empty() && nothing[0] == model.tokenizer->bos_id()) options.bos = nothing[0];
  return model.tokenizer->encode(text);
}

// JSON knows no NaN.
ordered_json number(double value) { return std::isfinite(value) ? ordered_json(value) : ordered_json(nullptr); }

ordered_json layers_json(engine::Runner& runner) {
  ordered_json layers = ordered_json::array();
  const auto& counters = runner.ops().activation_counters();
  for (size_t i = 0; i < counters.size(); ++i)
    layers.push_back({{"layer", i == 0 ? ordered_json("outside layers") : ordered_json(i - 1)},
                      {"values", counters[i].values},
                      {"non_finite", counters[i].non_finite},
                      {"saturated", counters[i].saturated}});
  return layers;
}

ordered_json report_json(const EvalFlags& flags, engine::Runner& runner, const engine::EvalResult& result) {
  const EngineInfo& info = runner.info();
  ordered_json json = {{"synthetic", info.synthetic},
                       {"ppl", number(result.ppl)},
                       {"nll_sum", number(result.nll)},
                       {"tokens", result.tokens},
                       {"windows", result.windows},
                       {"window", flags.window},
                       {"convention", flags.convention},
                       {"not_finite", result.not_finite},
                       {"model", runner.checkpoint().path().string()},
                       {"family", info.family},
                       {"device", info.device},
                       {"act", info.act},
                       {"kv", info.kv},
                       {"arms", engine::forced_arms_json(info.arms)},
                       {"threads", info.threads},
                       {"weight_bytes", info.weight_bytes},
                       {"seconds", result.seconds}};
  if (result.against)
    json["against"] = {{"model", flags.against},
                       {"ppl", number(result.against->reference_ppl)},
                       {"ppl_ratio", number(result.against->ppl_ratio)},
                       {"kl_mean", number(result.against->kl_mean)},
                       {"kl_p999", number(result.against->kl_p999)},
                       {"kl_max", number(result.against->kl_max)},
                       {"top1_agreement", number(result.against->top1_agreement)}};
  if (runner.ops().options().count_activations) json["activations"] = layers_json(runner);
  if (const auto& counts = runner.ops().expert_counts(); !engine::expert_use(counts).empty()) json["experts"] = counts;
  return json;
}

std::string activation_text(engine::Runner& runner) {
  std::string text = fmt::format("\nactivations that enter products as {}\n  {:>8} {:>14} {:>12} {:>12}\n",
                                 runner.info().act, "layer", "values", "non-finite", "saturated");
  const auto& counters = runner.ops().activation_counters();
  exec::ActivationCounters all;
  for (size_t i = 0; i < counters.size(); ++i) {
    text += fmt::format("  {:>8} {:>14} {:>12} {:>12}\n", i == 0 ? "outside" : std::to_string(i - 1),
                        counters[i].values, counters[i].non_finite, counters[i].saturated);
    all.values += counters[i].values;
    all.non_finite += counters[i].non_finite;
    all.saturated += counters[i].saturated;
  }
  return text + fmt::format("  {:>8} {:>14} {:>12} {:>12}\n", "all", all.values, all.non_finite, all.saturated);
}

std::string report_text(engine::Runner& runner, const engine::EvalResult& result) {
  const EngineInfo& info = runner.info();
  std::string text =
      fmt::format("perplexity {:.4f} over {} tokens in {} windows; act {}, kv {}{}, {} threads, {:.0f} tokens/s\n",
                  result.ppl, result.tokens, result.windows, info.act, info.kv, engine::forced_arms_text(info.arms),
                  info.threads, static_cast<double>(result.tokens) / std::max(result.seconds, 1e-9));
  if (result.against) {
    const auto& c = *result.against;
    text += fmt::format(
        "reference  {:.4f}\nratio      {:.5f}\nKL         {:.6f} mean, {:.5f} at 99.9 %, {:.5f} at most (nats, "
        "reference "
        "to model)\ntop-1      {:.3f} % the same\n",
        c.reference_ppl, c.ppl_ratio, c.kl_mean, c.kl_p999, c.kl_max, 100 * c.top1_agreement);
  }
  if (runner.ops().options().count_activations) text += activation_text(runner);
  if (const std::string experts = engine::expert_use_table(runner.ops().expert_counts()); !experts.empty())
    text += "\n" + experts;
  return text;
}

Status perplexity(const EvalFlags& flags) {
  GALVANI_TRY(LoadOptions options, flags.model.load_options());
  if (options.context > 0)
    return fail(ErrorCode::kInvalidArgument,
                "-c {}: it is of --logits; what is scored goes in windows, each of --window tokens ({} here)",
                options.context, flags.window);
  engine::EvalOptions eval{.convention = flags.convention == "llama.cpp" ? engine::EvalConvention::kSecondHalf
                                                                         : engine::EvalConvention::kWhole,
                           .window = flags.window,
                           .windows = flags.windows,
                           .bos = {},
                           .step_tokens = flags.model.batch};
  GALVANI_TRY(const std::vector<int32_t> ids, read_ids(flags, eval));
  // Asked for now, so that a short file is not found out after a long load.
  if (auto windows = engine::eval_windows(static_cast<int64_t>(ids.size()), eval); !windows) {
    Error error = std::move(windows).error();
    error.message += "; give a longer one, a smaller --window or fewer --windows";
    return wrap(std::move(error), flags.ids.empty() ? flags.text : flags.ids);
  }
  const bool json = flags.json_option->count() > 0;
  if (json && flags.json != "-")
    GALVANI_TRY_VOID(check_output("--json", flags.json,
                                  {options.model, flags.model.tokenizer, flags.ids, flags.text, flags.against}));
  options.context = flags.window;
  options.max_sequences = engine::eval_sequences(eval);
  options.count_activations = flags.count || flags.model.act == "f16";
  GALVANI_TRY(const auto runner, engine::Runner::load(options));
  std::unique_ptr<engine::Runner> reference;
  if (!flags.against.empty()) {
    options.model = flags.against;
    options.count_activations = false;
    options.act = "f32";  // the reference is as good as it can be, whatever is tried on the model
    options.kv = "f32";
    options.device = "cpu";  // no GPU multiplies f32
    options.arms.clear();
    options.progress = ProgressBar("loading the reference");
    GALVANI_TRY(reference, engine::Runner::load(options));
  }
  eval.progress = [bar = ProgressBar("scoring")](int64_t done, int64_t total, double ppl) mutable {
    bar(static_cast<double>(done) / static_cast<double>(total),
        fmt::format("window {} of {}, perplexity {:.3f}", done, total, ppl));
  };
  eval.stop = interrupted;
  catch_interrupts();
  GALVANI_TRY(const engine::EvalResult result, engine::evaluate(*runner, reference.get(), ids, eval));
  // Should one of table and file fail after all, the figures are still in the other.
  const Status shown = flags.json == "-" ? Status{} : print(report_text(*runner, result));
  if (json) {
    const std::string text = report_json(flags, *runner, result).dump(2) + "\n";
    GALVANI_TRY_VOID(flags.json == "-" ? print(text) : write_text_file(flags.json, text));
  }
  GALVANI_TRY_VOID(shown);
  return check_finite(result.not_finite, result.tokens);
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  auto flags = std::make_shared<EvalFlags>();
  flags->model.batch = 4096;
  CLI::App* verb = app.add_subcommand("eval", "perplexity, distance from another checkpoint, or logits of given ids");
  flags->model.add_synthetic(*verb);
  flags->model.add_to(*verb, true);
  flags->model.add_tokenizer_to(*verb);
  verb->add_option("--ids", flags->ids, "1-D .npy of uint16, int32 or int64 token ids");
  verb->add_option("--text", flags->text,
                   "text file to score instead, through the model's tokenizer (- for standard input)");
  verb->add_option("--window", flags->window, "tokens of a window (default 512)")
      ->check(CLI::Range(int64_t{2}, int64_t{1} << 20));
  verb->add_option("--windows", flags->windows, "the first so many windows (0: as many as there are, at most 256)")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40));
  verb->add_option(
          "--convention", flags->convention,
          "whole: every token of a window but the first of all is scored (default); llama.cpp: the second half "
          "of each window, as llama-perplexity does")
      ->check(CLI::IsMember({"whole", "llama.cpp"}));
  verb->add_option(
      "--against", flags->against,
      "reference checkpoint of the same model, run in f32: KL divergence, top-1 agreement, perplexity ratio");
  flags->json_option = verb->add_option(
      "--json", flags->json, "where to write the figures as JSON (- for standard output, instead of the table)");
  verb->add_flag("--count-activations", flags->count,
                 "count activations that the arithmetic cannot hold, by layer (always on with --act f16)");
  auto* logits = verb->add_option("--logits", flags->logits,
                                  "write float32 [n, vocab] logits of --ids as .npy instead of scoring");
  for (const char* other : {"--text", "--against", "--json", "--windows"}) logits->excludes(verb->get_option(other));
  verb->callback([flags, logits, &action] {
    action = [flags, write = logits->count() > 0] {
      const Status done = write ? write_logits(*flags) : perplexity(*flags);
      return done ? kYes : report(done.error());
    };
  });
}

}  // namespace galvani::cli
