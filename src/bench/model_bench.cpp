#include "bench/model_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "cuda/choose_device.h"
#include "engine/forced_arms.h"
#include "engine/runner.h"
#include "kernels/probe/probe.h"
#include "kernels/qmatmul/qmatmul.h"

namespace galvani::bench {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

kernels::RowSampling greedy_row() {
  kernels::RowSampling row;
  row.temperature = 0;
  return row;
}

/// One sequence's prompt, then a greedy token; seconds.
struct Prefill {
  exec::SeqId id = 0;
  int32_t token = 0;
  double seconds = 0;
};
Result<Prefill> prefill(engine::Runner& runner, const std::vector<int32_t>& prompt) {
  Prefill done;
  GALVANI_TRY(done.id, runner.state().create_sequence());
  const double start = now();
  exec::Batch batch;
  batch.add(done.id, 0, prompt, exec::WantLogits::kLast);
  GALVANI_TRY(const exec::Act logits, runner.forward(batch));
  const kernels::RowSampling greedy = greedy_row();
  GALVANI_TRY(const auto token, runner.ops().sample(logits, std::span(&greedy, 1)));
  done.token = token.front().id;
  done.seconds = now() - start;
  return done;
}

std::vector<int32_t> prompt_of(const engine::Runner& runner, int tokens, int sequence) {
  std::vector<int32_t> prompt;
  for (int i = 0; i < tokens; ++i)
    prompt.push_back(static_cast<int32_t>((1000 + 37 * i + sequence) % runner.info().vocab));
  return prompt;
}

/// Sequences ready to decode, and the seconds of the last prefill.
struct Running {
  std::vector<exec::SeqId> ids;
  std::vector<int32_t> last;
  double prefill_seconds = 0;
};
Result<Running> start(engine::Runner& runner, const ModelBenchOptions& sizes) {
  Running running;
  // The first prefill loads kernels; it is not timed.
  GALVANI_TRY(const Prefill first, prefill(runner, prompt_of(runner, sizes.prompt, 0)));
  runner.state().release(first.id);
  for (int s = 0; s < sizes.sequences; ++s) {
    GALVANI_TRY(const Prefill done, prefill(runner, prompt_of(runner, sizes.prompt, s)));
    running.ids.push_back(done.id);
    running.last.push_back(done.token);
    running.prefill_seconds = done.seconds;
  }
  return running;
}

/// The decode steps of a run.
struct Decoded {
  std::vector<double> seconds;  ///< sorted
  engine::ExpertCounts experts;
  std::vector<int64_t> experts_read;  ///< by each step
  double walked = 0;                  ///< bytes of weights that a step's CPU products walked over, on average
};

/// Decode steps with their greedy sampling; the first eight are left out where there are more.
Result<Decoded> decode(engine::Runner& runner, Running& running, int count) {
  Decoded decoded;
  const int warm = std::min(8, count - 1);
  const std::vector<kernels::RowSampling> greedy(running.ids.size(), greedy_row());
  engine::ExpertCounts first, before;
  uint64_t walked = 0;
  for (int step = 0; step < count; ++step) {
    before = runner.ops().expert_counts();
    if (step == warm) first = before, walked = kernels::qmatmul_bytes_walked();
    const double begin = now();
    exec::Batch batch;
    for (size_t s = 0; s < running.ids.size(); ++s)
      batch.add(running.ids[s], runner.state().length(running.ids[s]), std::span(&running.last[s], 1),
                exec::WantLogits::kLast);
    GALVANI_TRY(const exec::Act logits, runner.forward(batch));
    GALVANI_TRY(const auto tokens, runner.ops().sample(logits, greedy));
    for (size_t s = 0; s < running.ids.size(); ++s) running.last[s] = tokens[s].id;
    if (step < warm) continue;
    decoded.seconds.push_back(now() - begin);
    const int64_t read = engine::experts_read(engine::counted_since(before, runner.ops().expert_counts()));
    if (read > 0) decoded.experts_read.push_back(read);
  }
  decoded.walked = static_cast<double>(kernels::qmatmul_bytes_walked() - walked) / (count - warm);
  if (!decoded.experts_read.empty()) decoded.experts = engine::counted_since(first, runner.ops().expert_counts());
  std::sort(decoded.seconds.begin(), decoded.seconds.end());
  return decoded;
}

/// Weights, and keys and values of the sequences half-way through.
double bytes_of_a_step(engine::Runner& runner, const ModelBenchOptions& sizes, const Decoded& decoded) {
  const double context = sizes.prompt + sizes.steps / 2.0;
  double kv = 0;
  for (const auto& group : runner.state().spec().groups) {
    const double seen = group.window > 0 ? std::min<double>(group.window, context) : context;
    kv += seen * group.layers * group.kv_heads * (group.k_dim + group.v_dim) *
          static_cast<double>(dtype_bytes(runner.state().options().kv_dtype));
  }
  const bool walked = !decoded.experts_read.empty() && decoded.walked > 0;
  return (walked ? decoded.walked : static_cast<double>(runner.info().step_bytes)) + kv * sizes.sequences;
}

/// How many experts a step read, and how evenly they were used: "" without experts.
std::string expert_text(const ModelRecord& r, const std::string& label) {
  if (r.experts_read.empty()) return "";
  std::vector<int64_t> read = r.experts_read;
  std::sort(read.begin(), read.end());
  const auto layers = engine::expert_use(r.experts);
  int64_t all = 0;
  for (const engine::ExpertUse& layer : layers) all += layer.experts;
  std::string text = fmt::format(
      "{}experts read a step: {} of {} in {} layers (median, {} to {}); the busiest served {:.1f} % of its layer's "
      "tokens\n",
      label, read[read.size() / 2], all, layers.size(), read.front(), read.back(),
      100 * engine::busiest_share(r.experts));
  const std::string table = engine::expert_use_table(r.experts);
  for (size_t at = 0, end = 0; at < table.size(); at = end + 1) {
    end = table.find('\n', at);
    text += label + table.substr(at, end - at) + "\n";
  }
  return text;
}

/// What every line of a record of random weights begins with.
std::string label_of(const ModelRecord& r) { return r.info.synthetic ? "SYNTHETIC WEIGHTS: " : ""; }

}  // namespace

Result<ModelRecord> bench_model(ModelBenchOptions options) {
  if (options.prompt < 1 || options.steps < 1 || options.sequences < 1)
    return fail(ErrorCode::kInvalidArgument, "{} prompt tokens, {} steps and {} sequences: give at least 1 of each",
                options.prompt, options.steps, options.sequences);
  options.load.max_sequences = options.sequences;
  options.load.context = int64_t{options.prompt} + options.steps + 64;
  options.load.max_batch_tokens = std::max(512, options.prompt);
  ModelRecord record{.model = options.load.model, .prompt = options.prompt, .sequences = options.sequences};
  const double begin = now();
  GALVANI_TRY(const auto runner, engine::Runner::load(options.load));
  record.load_seconds = now() - begin;
  if (const auto device = cuda::parse_device(runner->info().device);
      options.ceiling && device && device->kind == cuda::DeviceRequest::Kind::kCuda) {
    GALVANI_TRY(const auto gpu, cuda::CudaDevice::open(device->index));
    GALVANI_TRY(const auto measured, kernels::measure_read_ceiling(*gpu, int64_t{4} << 30));
    record.read_ceiling_gbps = measured.gbps;
  }
  GALVANI_TRY(Running running, start(*runner, options));
  record.prefill_seconds = running.prefill_seconds;
  GALVANI_TRY(Decoded decoded, decode(*runner, running, options.steps));
  record.step_bytes = bytes_of_a_step(*runner, options, decoded);
  record.step_seconds = std::move(decoded.seconds);
  record.experts = std::move(decoded.experts);
  record.experts_read = std::move(decoded.experts_read);
  record.info = runner->info();
  record.times = runner->load_times();
  record.graphs = runner->ops().graphs();
  return record;
}

std::string model_record_text(const ModelRecord& r) {
  const std::string label = label_of(r);
  const EngineInfo& info = r.info;
  std::string text = fmt::format("{}{}: loaded in {:.2f} s, {:.1f} MB of weights\n", label, r.model, r.load_seconds,
                                 static_cast<double>(info.weight_bytes) / 1e6);
  if (r.times.upload_bytes > 0)
    text += fmt::format(
        "{}uploaded {:.1f} MB in {:.3f} s, {:.1f} GB/s (waited {:.1f} ms for memory, {:.1f} for reading, {:.1f} for "
        "the "
        "link); graphs captured in {:.1f} ms\n",
        label, static_cast<double>(r.times.upload_bytes) / 1e6, r.times.upload / 1e3,
        static_cast<double>(r.times.upload_bytes) / 1e6 / r.times.upload, r.times.upload_memory, r.times.upload_reading,
        r.times.upload_link, r.times.graph);
  text += fmt::format("{}{} on {}, act {}, kv {}{}: prefill of {} tokens {:.2f} ms ({:.0f} tokens/s)\n", label,
                      info.family, info.device, info.act, info.kv, engine::forced_arms_text(info.arms), r.prompt,
                      r.prefill_seconds * 1e3, r.prompt / r.prefill_seconds);
  const auto& steps = r.step_seconds;
  text += fmt::format(
      "{}decode of {} sequence{}: {:.3f} ms a step (median of {}, 10 % {:.3f}, 90 % {:.3f}), {:.1f} tokens/s; {:.1f} "
      "MB "
      "a step, {:.1f} GB/s",
      label, r.sequences, r.sequences == 1 ? "" : "s", r.step() * 1e3, steps.size(), steps[steps.size() / 10] * 1e3,
      steps[steps.size() * 9 / 10] * 1e3, r.sequences / r.step(), r.step_bytes / 1e6, r.step_bytes / r.step() / 1e9);
  if (r.read_ceiling_gbps > 0)
    text += fmt::format(", {:.1f} % of the {:.0f} GB/s read ceiling measured in this run",
                        100 * r.step_bytes / r.step() / 1e9 / r.read_ceiling_gbps, r.read_ceiling_gbps);
  text += "\n" + expert_text(r, label);
  for (const GraphInfo& graph : r.graphs) {
    text += fmt::format("{}graph of {}: {} nodes, {} replays:", label, graph.rows, graph.nodes, graph.replays);
    for (const auto& [name, count] : graph.kernels) text += fmt::format(" {} {}", count, name);
    text += "\n";
  }
  return text;
}

std::string model_record_json(const ModelRecord& r) {
  const EngineInfo& info = r.info;
  nlohmann::ordered_json json = {{"synthetic", info.synthetic},
                                 {"model", r.model},
                                 {"family", info.family},
                                 {"device", info.device},
                                 {"act", info.act},
                                 {"kv", info.kv},
                                 {"arms", engine::forced_arms_json(info.arms)},
                                 {"threads", info.threads},
                                 {"weight_bytes", info.weight_bytes},
                                 {"load_seconds", r.load_seconds},
                                 {"upload_ms", r.times.upload},
                                 {"upload_bytes", r.times.upload_bytes},
                                 {"upload_memory_ms", r.times.upload_memory},
                                 {"upload_reading_ms", r.times.upload_reading},
                                 {"upload_link_ms", r.times.upload_link},
                                 {"graph_ms", r.times.graph},
                                 {"prompt_tokens", r.prompt},
                                 {"prefill_seconds", r.prefill_seconds},
                                 {"sequences", r.sequences},
                                 {"step_seconds_median", r.step()},
                                 {"step_bytes", r.step_bytes},
                                 {"read_ceiling_gbps", r.read_ceiling_gbps},
                                 {"step_seconds", r.step_seconds}};
  if (!r.experts_read.empty())
    json["experts"] = {
        {"read", r.experts_read}, {"busiest_share", engine::busiest_share(r.experts)}, {"tokens", r.experts}};
  json["graphs"] = nlohmann::ordered_json::array();
  for (const GraphInfo& graph : r.graphs) {
    nlohmann::ordered_json entry = {{"rows", graph.rows}, {"nodes", graph.nodes}, {"replays", graph.replays}};
    for (const auto& [name, count] : graph.kernels) entry["kernels"][name] = count;
    json["graphs"].push_back(std::move(entry));
  }
  return json.dump(1) + "\n";
}

}  // namespace galvani::bench
