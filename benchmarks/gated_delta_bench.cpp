// The gated delta net on the CPU: a decode step of 1, 4 and 16 sequences and a prompt of 512 tokens, at the shapes of
// real models, every arm. Prints µs a layer; for decode the bytes of state read and written a second beside what the
// same run measured of memory (reading, and reading and writing back in place); for prompts the multiply-adds a second
// of the recurrence beside the most that this processor did. Usage: gated_delta_bench [threads]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "core/parallel.h"
#include "exec/memory.h"
#include "kernels/gated_delta/gated_delta.h"

namespace galvani::kernels {
namespace {

struct Model {
  const char* name;
  GatedDeltaShape shape;
  int layers;
};

double now_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// A layer's weights and activations; states of `layers` layers × `sequences`, in memory as the engine takes it.
struct Bench {
  Bench(const Model& model, int layer_count, int sequence_count, int64_t tokens)
      : shape(model.shape), layers(layer_count), sequences(sequence_count), count(tokens) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    const auto fill = [&](std::vector<float>& x, int64_t n) {
      x.resize(static_cast<size_t>(n));
      for (float& v : x) v = normal(random);
    };
    const int64_t rows = sequences * count;
    fill(conv, shape.kernel * shape.channels());
    fill(gates, 2 * int64_t{shape.value_heads});
    fill(norm, shape.v_dim);
    fill(in, rows * shape.columns());
    out.resize(static_cast<size_t>(rows * shape.values()));
    scratch.resize(static_cast<size_t>(gated_delta_scratch(shape, rows)));
    per_sequence = shape.conv_elements() + shape.state_elements();
    const auto bytes = static_cast<size_t>(int64_t{layers} * sequences * per_sequence * 4);
    state = reinterpret_cast<float*>(exec::host_memory().allocate(bytes, "benchmark").value());
    std::memset(state, 0, bytes);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;
  ~Bench() { exec::host_memory().release(reinterpret_cast<std::byte*>(state)); }

  void layer(int l, GatedDeltaArm arm) {
    std::vector<GatedDeltaSequence> chunks;
    for (int s = 0; s < sequences; ++s) {
      float* slot = state + (int64_t{s} * layers + l) * per_sequence;
      chunks.push_back({s * count, count, 0, slot, slot + shape.conv_elements()});
    }
    const GatedDeltaWeights weights{conv.data(), gates.data(), gates.data() + shape.value_heads, norm.data(), 1e-6f};
    gated_delta(shape, weights, chunks, in.data(), shape.columns(), out.data(), shape.values(), scratch.data(), arm);
  }

  /// Median µs of one layer over `runs` passes through all of them.
  double layer_us(GatedDeltaArm arm, int runs) {
    std::vector<double> times;
    for (int r = 0; r < runs + 1; ++r) {
      const double start = now_us();
      for (int l = 0; l < layers; ++l) layer(l, arm);
      if (r > 0) times.push_back((now_us() - start) / layers);
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  GatedDeltaShape shape;
  int layers, sequences;
  int64_t count, per_sequence;
  std::vector<float> conv, gates, norm, in, out, scratch;
  float* state;
};

struct Memory {
  double read = 0, update = 0;  ///< GB/s; an update counts its reads and its writes
};

Memory measure_memory() {
  const size_t bytes = size_t{256} << 20;
  std::byte* raw = exec::host_memory().allocate(bytes, "benchmark").value();
  std::memset(raw, 0, bytes);
  auto* data = reinterpret_cast<float*>(raw);
  const auto n = static_cast<int64_t>(bytes / sizeof(float));
  Memory best;
  std::vector<float> sums(static_cast<size_t>(threads()) * 64);
  for (int r = 0; r < 6; ++r) {
    double start = now_us();
    parallel_for(n, 4096, [&](int64_t begin, int64_t end, int t) {
      float sum[64] = {};
      for (int64_t i = begin; i < end; i += 64)
        for (int k = 0; k < 64; ++k) sum[k] += data[i + k];
      std::memcpy(sums.data() + t * 64, sum, sizeof(sum));
    });
    best.read = std::max(best.read, static_cast<double>(bytes) / (now_us() - start) * 1e-3);
    start = now_us();
    parallel_for(n, 4096, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) data[i] = data[i] * 0.5f + 1.0f;
    });
    best.update = std::max(best.update, 2.0 * static_cast<double>(bytes) / (now_us() - start) * 1e-3);
  }
  if (sums[0] < 0) std::printf("%f\n", static_cast<double>(sums[0]));
  exec::host_memory().release(raw);
  return best;
}

void decode(const Model& model, int sequences, const Memory& memory) {
  // Enough layers that their states do not stay in the caches, as a real model's would not.
  const int64_t per_layer = model.shape.state_elements() * 4 * sequences;
  const int layers = static_cast<int>(std::clamp<int64_t>((int64_t{192} << 20) / per_layer, 2, model.layers));
  Bench bench(model, layers, sequences, 1);
  const double us = bench.layer_us(GatedDeltaArm::kAuto, 15), gbs = 2.0 * static_cast<double>(per_layer) / us * 1e-3;
  std::printf(
      "%-14s decode %2d sequences  %9.1f us/layer  %8.2f ms/model  %6.1f GB/s: %3.0f %% of reading, %3.0f %% of "
      "updating (state %.1f MB over %d layers)\n",
      model.name, sequences, us, us * model.layers * 1e-3, gbs, 100 * gbs / memory.read, 100 * gbs / memory.update,
      static_cast<double>(per_layer) * layers * 1e-6, layers);
}

void prompt(const Model& model, int64_t tokens) {
  for (const GatedDeltaArm arm :
       {GatedDeltaArm::kRecurrent, GatedDeltaArm::kChunk16, GatedDeltaArm::kChunk32, GatedDeltaArm::kChunk64}) {
    Bench bench(model, 2, 1, tokens);
    const double us = bench.layer_us(arm, 7);
    const double madds = 3.0 * static_cast<double>(model.shape.state_elements() * tokens);
    std::printf("%-14s prompt %4lld %-10s %9.0f us/layer  %8.1f ms/model  %7.0f tokens/s  %6.1f G madd/s\n", model.name,
                static_cast<long long>(tokens), gated_delta_arm_name(arm), us, us * model.layers * 1e-3,
                static_cast<double>(tokens) / (us * model.layers) * 1e6, madds / us * 1e-3);
  }
}

}  // namespace
}  // namespace galvani::kernels

int main(int argc, char** argv) {
  using namespace galvani;
  using namespace galvani::kernels;
  set_threads(argc > 1 ? std::atoi(argv[1]) : 0);
  const Memory memory = measure_memory();
  std::printf("%d threads, memory reads %.1f GB/s, updates %.1f GB/s\n", threads(), memory.read, memory.update);
  const Model models[] = {{"trained-hybrid", {4, 8, 32, 32, 4}, 6},
                          {"Qwen3-Next", {16, 32, 128, 128, 4}, 36},
                          {"Qwen3.5-27B", {16, 48, 128, 128, 4}, 48}};
  for (const Model& model : models)
    for (const int sequences : {1, 4, 16}) decode(model, sequences, memory);
  for (const Model& model : models) prompt(model, 512);
  return 0;
}
