// galvani generate: one prompt, text as it comes, rates at the end.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/sampling_flags.h"
#include "cli/text_input.h"
#include "core/error.h"
#include "engine/completion.h"
#include "engine/forced_arms.h"
#include "formats/atomic_file.h"

namespace galvani::cli {
namespace {

struct GenerateFlags {
  ModelFlags model;
  SamplingFlags sampling;
  std::string prompt, file, stats;
  bool chat = false, no_special = false;
  CLI::Option* prompt_option = nullptr;
  CLI::Option* file_option = nullptr;
  CLI::Option* stats_option = nullptr;
};

// A rate takes the time between two tokens at least.
bool has_rate(const engine::CompletionResult& result) { return result.tokens.size() > 1; }

double upload_gbps(const LoadTimes& t) {
  return t.upload > 0 ? static_cast<double>(t.upload_bytes) / 1e6 / t.upload : 0;
}

nlohmann::ordered_json stats_json(const EngineInfo& info, const engine::CompletionResult& result,
                                  const SamplingParams& sampling, const Engine& engine) {
  const LoadTimes t = engine.times();
  const double prefill = result.times.first_token - result.times.start;
  nlohmann::ordered_json json = {
      {"synthetic", info.synthetic},
      {"prompt_tokens", result.prompt_tokens},
      {"prompt_tps", result.prompt_tps()},
      {"generated_tokens", result.tokens.size()},
      {"generated_tps", has_rate(result) ? nlohmann::ordered_json(result.generated_tps()) : nlohmann::ordered_json()},
      {"ttft_ms", t.open + t.map + t.pack + t.upload + prefill},
      {"ttft_parts_ms",
       {{"open", t.open}, {"map", t.map}, {"pack", t.pack}, {"upload", t.upload}, {"prefill", prefill}}},
      {"upload_bytes", t.upload_bytes},
      {"upload_gbps", upload_gbps(t)},
      {"graph_ms", t.graph},
      {"finish", finish_reason_name(result.finish)},
      {"threads", info.threads},
      {"device", info.device},
      {"act", info.act},
      {"kv", info.kv},
      {"arms", engine::forced_arms_json(info.arms)},
      {"family", info.family},
      {"context", info.context},
      {"weight_bytes", info.weight_bytes},
      {"step_bytes", info.step_bytes},
      {"sampling", describe(sampling)},
  };
  for (const auto& [name, count] : engine.kernels_run()) json["kernels"][name] = count;
  json["graphs"] = nlohmann::ordered_json::array();
  for (const GraphInfo& graph : engine.graphs()) {
    nlohmann::ordered_json entry = {{"rows", graph.rows}, {"nodes", graph.nodes}, {"replays", graph.replays}};
    for (const auto& [name, count] : graph.kernels) entry["kernels"][name] = count;
    json["graphs"].push_back(std::move(entry));
  }
  return json;
}

void print_graphs(const Engine& engine, double capture_ms) {
  for (const GraphInfo& graph : engine.graphs()) {
    std::fprintf(stderr, "decode graph of %d: %lld nodes, replayed %llu times (capturing all: %.1f ms):", graph.rows,
                 static_cast<long long>(graph.nodes), static_cast<unsigned long long>(graph.replays), capture_ms);
    for (const auto& [name, count] : graph.kernels)
      std::fprintf(stderr, " %llu %s", static_cast<unsigned long long>(count), name.c_str());
    std::fprintf(stderr, "\n");
  }
}

void print_rates(const Engine& engine, const engine::CompletionResult& result, const SamplingParams& sampling,
                 int64_t budget) {
  const EngineInfo& info = engine.info();
  const LoadTimes t = engine.times();
  const double prefill = result.times.first_token - result.times.start;
  if (info.synthetic) std::fprintf(stderr, "\nSYNTHETIC WEIGHTS: rates of random weights; the text means nothing");
  std::fprintf(stderr, "\nprompt     %6lld tokens, %8.1f tokens/s\n", static_cast<long long>(result.prompt_tokens),
               result.prompt_tps());
  if (has_rate(result))
    std::fprintf(stderr, "generated  %6zu tokens, %8.1f tokens/s", result.tokens.size(), result.generated_tps());
  else
    std::fprintf(stderr, "generated  %6zu tokens, no rate: that takes two", result.tokens.size());
  if (static_cast<int64_t>(result.tokens.size()) < budget)
    std::fprintf(stderr, " (ended before the %lld asked for: %s)", static_cast<long long>(budget),
                 finish_reason_name(result.finish));
  std::fprintf(stderr, "\nfirst token after %.0f ms: open %.1f, map %.1f, pack %.0f, upload %.0f, prefill %.0f\n",
               t.open + t.map + t.pack + t.upload + prefill, t.open, t.map, t.pack, t.upload, prefill);
  if (t.upload_bytes > 0)
    std::fprintf(stderr, "uploaded %.1f MB at %.1f GB/s, from the page cache until ready\n",
                 static_cast<double>(t.upload_bytes) / 1e6, upload_gbps(t));
  print_graphs(engine, t.graph);
  std::fprintf(stderr, "%s, %d threads, act %s, kv %s%s, %s; a decode step reads %.1f MB of weights\n",
               info.device.c_str(), info.threads, info.act.c_str(), info.kv.c_str(),
               engine::forced_arms_text(info.arms).c_str(), describe(sampling).c_str(),
               static_cast<double>(info.step_bytes) / 1e6);
}

Result<std::string> prompt_text(const GenerateFlags& flags) {
  if (flags.prompt_option->count() == 0 && flags.file_option->count() == 0)
    return fail(ErrorCode::kInvalidArgument, "no prompt; give -p TEXT or -f FILE (- for standard input)");
  if (flags.file_option->count() > 0) return read_text_file(flags.file);
  return flags.prompt;
}

Status generate(const GenerateFlags& flags) {
  GALVANI_TRY_VOID(flags.sampling.check());
  GALVANI_TRY(LoadOptions options, flags.model.load_options());
  GALVANI_TRY(const std::string prompt, prompt_text(flags));
  GALVANI_TRY(const ModelText text, ModelText::open(options.model, flags.model.tokenizer));
  Request request;
  if (flags.chat) {
    const auto messages = nlohmann::ordered_json::array({{{"role", "user"}, {"content", prompt}}});
    GALVANI_TRY(request.prompt, text.chat_ids(messages, {}, {}));
  } else {
    GALVANI_TRY(request.prompt, text.tokenizer->encode(prompt, {.add_special = !flags.no_special}));
  }
  if (request.prompt.empty())
    return fail(ErrorCode::kInvalidArgument,
                "the prompt is empty, and this model puts no token before it; give at least one character");

  const bool stats = flags.stats_option->count() > 0;
  if (stats)  // better to fail here than after the run
    GALVANI_TRY_VOID(check_output("--stats", flags.stats, {options.model, flags.model.tokenizer, flags.file}));
  options.valid_vocab = static_cast<int64_t>(text.tokenizer->vocab_size());
  GALVANI_TRY(const auto engine, Engine::load(options));
  GALVANI_TRY(request.sampling, flags.sampling.params(engine->info()));
  request.max_tokens = flags.sampling.max_tokens;
  request.ignore_eos = flags.sampling.ignore_eos;
  const SamplingParams sampling = request.sampling;

  catch_interrupts();
  Status shown;  // once nobody reads the text any more, the run ends
  const engine::CompletionOptions completion{.stop = flags.sampling.stop,
                                             .cancelled = [&] { return interrupted() || !shown; }};
  GALVANI_TRY(const auto result,
              engine::complete(*engine, text.tokenizer, std::move(request), completion, [&](const std::string& piece) {
                if (shown) shown = print(piece);
              }));
  if (shown) shown = print("\n");
  print_rates(*engine, result, sampling, flags.sampling.max_tokens);
  if (stats) {
    const std::string json = stats_json(engine->info(), result, sampling, *engine).dump(2) + "\n";
    GALVANI_TRY_VOID(write_text_file(flags.stats, json));
  }
  GALVANI_TRY_VOID(shown);
  if (result.finish == FinishReason::kCancelled) return fail(ErrorCode::kCancelled, "interrupted");
  return {};
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  auto flags = std::make_shared<GenerateFlags>();
  CLI::App* verb = app.add_subcommand("generate", "continue a prompt; streams text, prints rates at the end");
  flags->model.add_synthetic(*verb);
  flags->model.add_to(*verb, true);
  flags->model.add_tokenizer_to(*verb);
  flags->sampling.add_to(*verb);
  flags->prompt_option = verb->add_option("-p,--prompt", flags->prompt, "the prompt");
  flags->file_option = verb->add_option("-f,--file", flags->file, "read the prompt from a file (- for standard input)");
  flags->prompt_option->excludes(flags->file_option);
  verb->add_flag("--chat", flags->chat, "the prompt is a user's message: wrap it in the model's chat template");
  verb->add_flag("--no-special", flags->no_special, "do not add the model's BOS token before a raw prompt");
  flags->stats_option = verb->add_option("--stats", flags->stats, "write the figures to this file as JSON");
  verb->callback([flags, &action] {
    action = [flags] {
      const Status done = generate(*flags);
      return done ? kYes : report(done.error());
    };
  });
}

}  // namespace galvani::cli
