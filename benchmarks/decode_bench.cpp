// Decode steps of a whole model at several numbers of sequences, and a prompt. Prints ms a step, the bytes that a step
// must move (weights once, recurrent state read and written for each sequence; keys and values are left out: short
// contexts) and their share of what the same run measured of reading memory.
// Usage: decode_bench MODEL [act] [sequences...]     (default: auto 1 4 16)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "core/arena.h"
#include "core/parallel.h"
#include "engine/runner.h"

namespace galvani {
namespace {

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double read_gbs() {
  const size_t bytes = size_t{256} << 20;
  std::byte* raw = exec::host_memory().allocate(bytes, "benchmark").value();
  std::memset(raw, 1, bytes);
  const auto* data = reinterpret_cast<const float*>(raw);
  std::vector<float> sums(static_cast<size_t>(threads()) * 64);
  double best = 0;
  for (int r = 0; r < 6; ++r) {
    const double start = now_ms();
    parallel_for(static_cast<int64_t>(bytes / 4), 4096, [&](int64_t begin, int64_t end, int t) {
      float sum[64] = {};
      for (int64_t i = begin; i < end; i += 64)
        for (int k = 0; k < 64; ++k) sum[k] += data[i + k];
      std::memcpy(sums.data() + t * 64, sum, sizeof(sum));
    });
    best = std::max(best, static_cast<double>(bytes) / (now_ms() - start) * 1e-6);
  }
  exec::host_memory().release(raw);
  return sums[0] != 0 ? best : 0;
}

int run(const char* path, const char* act, const std::vector<int>& sequence_counts) {
  LoadOptions options;
  options.model = path;
  options.act = act;
  options.context = 600;
  options.max_sequences = *std::max_element(sequence_counts.begin(), sequence_counts.end());
  auto loaded = engine::Runner::load(options);
  if (!loaded) {
    std::fprintf(stderr, "%s\n", loaded.error().message.c_str());
    return 2;
  }
  engine::Runner& runner = **loaded;
  const double limit = read_gbs(), weights = static_cast<double>(runner.info().step_bytes);
  const exec::StatePlan plan = exec::plan_state(runner.model().state_spec(), {.context = 600, .max_sequences = 1});
  const double state = 2.0 * static_cast<double>(plan.slot_bytes);
  std::printf(
      "%s: %s, act %s, %d threads, memory reads %.1f GB/s; a step reads %.1f MB of weights, moves %.2f MB of "
      "recurrent state a sequence\n",
      path, runner.info().family.c_str(), runner.info().act.c_str(), threads(), limit, weights * 1e-6, state * 1e-6);
  std::vector<int32_t> prompt;
  for (int i = 0; i < 512; ++i) prompt.push_back((i * 37 + i / 7) % 250);
  for (const int count : sequence_counts) {
    std::vector<exec::SeqId> ids;
    for (int s = 0; s < count; ++s) ids.push_back(runner.state().create_sequence().value());
    std::vector<double> times;
    for (int32_t t = 0; t < 40; ++t) {
      exec::Batch batch;
      for (const exec::SeqId id : ids)
        batch.add(id, t, std::span(prompt).subspan(static_cast<size_t>(t + id), 1), exec::WantLogits::kLast);
      const double start = now_ms();
      if (!runner.forward(batch)) return 2;
      if (t >= 5) times.push_back(now_ms() - start);
    }
    std::sort(times.begin(), times.end());
    const double ms = times[times.size() / 2], rate = (weights + state * count) / ms * 1e-6;
    std::printf("  decode %2d sequences  %8.3f ms/step (best %8.3f)  %8.1f tokens/s  %6.1f GB/s, %3.0f %% of reading\n",
                count, ms, times.front(), count / ms * 1e3, rate, 100 * rate / limit);
    for (const exec::SeqId id : ids) runner.state().release(id);
  }
  std::vector<double> times;
  for (int r = 0; r < 4; ++r) {
    const exec::SeqId id = runner.state().create_sequence().value();
    exec::Batch batch;
    batch.add(id, 0, prompt, exec::WantLogits::kLast);
    const double start = now_ms();
    if (!runner.forward(batch)) return 2;
    times.push_back(now_ms() - start);
    runner.state().release(id);
  }
  std::sort(times.begin(), times.end());
  std::printf("  prompt of 512  %8.1f ms  %8.1f tokens/s\n", times[1], 512e3 / times[1]);
  for (const auto& [kernel, runs] : runner.ops().kernels_run())
    std::printf("  %s %llu\n", kernel.c_str(), static_cast<unsigned long long>(runs));
  return 0;
}

}  // namespace
}  // namespace galvani

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: decode_bench MODEL [act] [sequences...]\n");
    return 2;
  }
  std::vector<int> counts;
  for (int i = 3; i < argc; ++i) counts.push_back(std::max(1, std::atoi(argv[i])));
  if (counts.empty()) counts = {1, 4, 16};
  return galvani::run(argv[1], argc > 2 ? argv[2] : "auto", counts);
}
