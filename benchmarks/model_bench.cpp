// A whole model: prefill and decode rates, and decode's share of what the part can read.
// Usage: model_bench MODEL [DEVICE [PROMPT [STEPS [SEQUENCES]]]], e.g. model_bench model.gguf cuda 512 256 1
// MODEL may be synthetic:BITS:FOLDER (random weights in the shapes of FOLDER/config.json); every line then says so.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "core/error.h"
#include "engine/runner.h"
#include "kernels/probe/probe.h"

namespace galvani {
namespace {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

struct Sizes {
  int prompt = 512, steps = 256, sequences = 1;
};

/// Median seconds of a decode step that also samples greedily, and bytes of keys and values read by the middle one.
Status measure(engine::Runner& runner, const Sizes& sizes, double ceiling_gbps, const std::string& label) {
  std::vector<exec::SeqId> ids;
  std::vector<int32_t> last(static_cast<size_t>(sizes.sequences), 1);
  std::vector<double> prefill;
  for (int s = 0; s < sizes.sequences; ++s) {
    GALVANI_TRY(const exec::SeqId id, runner.state().create_sequence());
    ids.push_back(id);
    std::vector<int32_t> prompt;
    for (int i = 0; i < sizes.prompt; ++i)
      prompt.push_back(static_cast<int32_t>((1000 + 37 * i + s) % runner.info().vocab));
    const double start = now();
    exec::Batch batch;
    batch.add(id, 0, prompt, exec::WantLogits::kLast);
    GALVANI_TRY(const exec::Act logits, runner.forward(batch));
    kernels::RowSampling greedy;
    greedy.temperature = 0;
    GALVANI_TRY(const auto token, runner.ops().sample(logits, std::span(&greedy, 1)));
    last[static_cast<size_t>(s)] = token.front().id;
    prefill.push_back(now() - start);
  }
  // The first prefill loads kernels; run one more for the rate.
  if (sizes.sequences == 1) {
    runner.state().release(ids[0]);
    GALVANI_TRY(ids[0], runner.state().create_sequence());
    std::vector<int32_t> prompt(static_cast<size_t>(sizes.prompt), 17);
    const double start = now();
    exec::Batch batch;
    batch.add(ids[0], 0, prompt, exec::WantLogits::kLast);
    GALVANI_TRY(const exec::Act logits, runner.forward(batch));
    std::vector<float> row(static_cast<size_t>(logits.cols));
    GALVANI_TRY_VOID(runner.ops().read(logits, row.data()));
    prefill.push_back(now() - start);
  }
  std::vector<double> steps;
  std::vector<kernels::RowSampling> greedy(static_cast<size_t>(sizes.sequences));
  for (auto& row : greedy) row.temperature = 0;
  for (int step = 0; step < sizes.steps; ++step) {
    const double start = now();
    exec::Batch batch;
    for (size_t s = 0; s < ids.size(); ++s)
      batch.add(ids[s], runner.state().length(ids[s]), std::span(&last[s], 1), exec::WantLogits::kLast);
    GALVANI_TRY(const exec::Act logits, runner.forward(batch));
    GALVANI_TRY(const auto tokens, runner.ops().sample(logits, greedy));
    for (size_t s = 0; s < ids.size(); ++s) last[s] = tokens[s].id;
    steps.push_back(now() - start);
  }
  std::vector<double> sorted(steps.begin() + std::min<std::ptrdiff_t>(8, std::ssize(steps) - 1), steps.end());
  std::sort(sorted.begin(), sorted.end());
  const double step = sorted[sorted.size() / 2], context = sizes.prompt + sizes.steps / 2.0;
  double kv = 0;
  for (const auto& group : runner.state().spec().groups) {
    const double seen = group.window > 0 ? std::min<double>(group.window, context) : context;
    kv += seen * group.layers * group.kv_heads * (group.k_dim + group.v_dim) *
          static_cast<double>(dtype_bytes(runner.state().options().kv_dtype));
  }
  const double bytes = static_cast<double>(runner.info().step_bytes) + kv * sizes.sequences;
  fmt::print("{}{} on {}, act {}, kv {}: prefill of {} tokens {:.2f} ms ({:.0f} tokens/s)\n", label,
             runner.info().family, runner.info().device, runner.info().act, runner.info().kv, sizes.prompt,
             prefill.back() * 1e3, sizes.prompt / prefill.back());
  fmt::print(
      "{}{} decode of {} sequences: {:.3f} ms a step (median of {}, 10 % {:.3f}, 90 % {:.3f}), {:.1f} tokens/s; {:.1f} "
      "MB a step, {:.0f} GB/s",
      label, runner.info().family, sizes.sequences, step * 1e3, sorted.size(), sorted[sorted.size() / 10] * 1e3,
      sorted[sorted.size() * 9 / 10] * 1e3, sizes.sequences / step, bytes / 1e6, bytes / step / 1e9);
  if (ceiling_gbps > 0)
    fmt::print(", {:.1f} % of the {:.0f} GB/s read ceiling measured in this run",
               100 * bytes / step / 1e9 / ceiling_gbps, ceiling_gbps);
  fmt::print("\n");
  for (const auto& [name, count] : runner.ops().kernels_run())
    if (name.starts_with("graph")) fmt::print("  {}: {}\n", name, count);
  return {};
}

Status run(int argc, char** argv) {
  LoadOptions options;
  options.model = argv[1];
  if (argc > 2) options.device = argv[2];
  Sizes sizes;
  if (argc > 3) sizes.prompt = std::atoi(argv[3]);
  if (argc > 4) sizes.steps = std::atoi(argv[4]);
  if (argc > 5) sizes.sequences = std::atoi(argv[5]);
  options.max_sequences = sizes.sequences;
  options.context = sizes.prompt + sizes.steps + 64;
  options.max_batch_tokens = std::max(512, sizes.prompt);
  const double start = now();
  GALVANI_TRY(const auto runner, engine::Runner::load(options));
  double ceiling = 0;
  if (runner->info().device != "cpu") {
    GALVANI_TRY(const auto device, cuda::CudaDevice::open(0));
    GALVANI_TRY(const auto measured, kernels::measure_read_ceiling(*device, int64_t{4} << 30));
    ceiling = measured.gbps;
  }
  const bool synthetic = options.model.starts_with("synthetic:");
  const std::string label = synthetic ? "SYNTHETIC WEIGHTS " + options.model + ": " : "";
  fmt::print("{}loaded in {:.2f} s, {:.1f} MB of weights\n", label, now() - start,
             static_cast<double>(runner->info().weight_bytes) / 1e6);
  return measure(*runner, sizes, ceiling, label);
}

}  // namespace
}  // namespace galvani

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: model_bench MODEL [DEVICE [PROMPT [STEPS [SEQUENCES]]]]\n");
    return 2;
  }
  if (auto done = galvani::run(argc, argv); !done) {
    fmt::print(stderr, "error: {}\n", done.error().message);
    return 1;
  }
  return 0;
}
