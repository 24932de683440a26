// Attention on the CPU: prefill of 512 tokens and decode at several context lengths, at the shapes of real models.
// Prints milliseconds a layer and a model, and the share of the limit that was measured in the same run: multiply-adds
// per second for prefill, bytes per second for decode. Usage: attention_bench [threads]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "core/arena.h"
#include "core/parallel.h"
#include "kernels/attention/attention.h"

namespace galvani::kernels {
namespace {

struct Model {
  const char* name;
  int heads, kv_heads, k_dim, v_dim, layers, window;
  bool v_in_k = false;
  /// Elements of a page's token and head.
  int stored() const { return v_in_k ? k_dim : k_dim + v_dim; }
};

double now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Pages of every layer filled with normal values.
struct Store {
  Store(const Model& m, int tokens, DType type, int count) : model(m), pages((tokens + kPageTokens - 1) / kPageTokens) {
    const int64_t bytes = dtype_bytes(type);
    layer = {nullptr,
             nullptr,
             int64_t{m.kv_heads} * kPageTokens * m.k_dim * bytes,
             int64_t{m.kv_heads} * kPageTokens * m.v_dim * bytes,
             m.kv_heads,
             m.k_dim,
             m.v_dim,
             type,
             m.v_in_k};
    blocks.resize(static_cast<size_t>(pages));
    std::iota(blocks.begin(), blocks.end(), 0);
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const size_t width = static_cast<size_t>(m.kv_heads * std::max(m.k_dim, m.v_dim));
    std::vector<float> rows(static_cast<size_t>(pages * kPageTokens) * width);
    for (float& x : rows) x = normal(random);
    q.resize(static_cast<size_t>(tokens * m.heads * m.k_dim));
    for (float& x : q) x = normal(random);
    out.resize(static_cast<size_t>(tokens * m.heads * m.v_dim));
    for (int i = 0; i < count; ++i) {
      memory.emplace_back(static_cast<size_t>(pages * layer.k_page_stride));
      memory.emplace_back(static_cast<size_t>(pages * layer.v_page_stride));
      use(i);
      const AttentionChunk all{0, pages * kPageTokens, 0, blocks.data()};
      kv_append(layer, {&all, 1}, rows.data(), static_cast<int64_t>(width), rows.data(), static_cast<int64_t>(width));
    }
  }
  void use(int i) {
    layer.k = memory[static_cast<size_t>(2 * i)].data();
    layer.v = memory[static_cast<size_t>(2 * i + 1)].data();
  }
  void attend(int first, int count) {
    const AttentionParams params{model.heads, 0.125f, model.window, 0, nullptr};
    const AttentionChunk chunk{0, count, first, blocks.data()};
    attention(layer, params, {&chunk, 1}, q.data(), int64_t{model.heads} * model.k_dim, out.data(),
              int64_t{model.heads} * model.v_dim);
  }
  Model model;
  int pages;
  KvLayer layer;
  std::vector<int32_t> blocks;
  std::vector<AlignedBuffer> memory;
  std::vector<float> q, out;
};

struct Times {
  double median, best;
};

/// Time of one layer, ms, over `runs` passes through all of the store's layers.
Times layer_ms(Store& store, int layers, int first, int count, int runs) {
  std::vector<double> times;
  for (int r = 0; r < runs + 1; ++r) {
    const double start = now_ms();
    for (int i = 0; i < layers; ++i) {
      store.use(i);
      store.attend(first, count);
    }
    if (r > 0) times.push_back((now_ms() - start) / layers);
  }
  std::sort(times.begin(), times.end());
  return {times[times.size() / 2], times.front()};
}

/// Visible (query, key) pairs of rows [first, first + count).
double pairs(const Model& m, int first, int count) {
  double sum = 0;
  for (int p = first; p < first + count; ++p) sum += m.window > 0 ? std::min(p + 1, m.window) : p + 1;
  return sum;
}

/// Bytes per second that all threads together read from memory.
double read_gbs() {
  AlignedBuffer big(size_t{256} << 20);
  std::memset(big.data(), 1, big.size());
  double best = 0;
  for (int r = 0; r < 5; ++r) {
    const double start = now_ms();
    std::vector<uint64_t> sums(static_cast<size_t>(threads()) * 8);
    parallel_for(static_cast<int64_t>(big.size()), 4096, [&](int64_t begin, int64_t end, int t) {
      uint64_t a[8] = {};
      for (int64_t i = begin; i < end; i += 64)
        for (int k = 0; k < 8; ++k) {
          uint64_t x;
          std::memcpy(&x, big.data() + i + 8 * k, 8);
          a[k] += x;
        }
      for (uint64_t x : a) sums[static_cast<size_t>(t) * 8] += x;
    });
    if (sums[0] != 0) best = std::max(best, static_cast<double>(big.size()) / (now_ms() - start) * 1e-6);
  }
  return best;
}

void prefill(const Model& m, DType type, int tokens) {
  Store store(m, tokens, type, 2);
  const Times ms = layer_ms(store, 2, 0, tokens, 30);
  const double madds = pairs(m, 0, tokens) * m.heads * (m.k_dim + m.v_dim);
  std::printf("%-12s %-5s prefill %5d  %8.3f ms/layer (best %8.3f)  %8.1f ms/model  %6.1f G madd/s\n", m.name,
              dtype_name(type), tokens, ms.median, ms.best, ms.median * m.layers, madds / ms.median * 1e-6);
}

void decode(const Model& m, DType type, int context, double limit) {
  Store store(m, context, type, m.layers);
  const Times ms = layer_ms(store, m.layers, context - 1, 1, 20);
  const double bytes = pairs(m, context - 1, 1) * m.kv_heads * m.stored() * static_cast<double>(dtype_bytes(type));
  const double rate = bytes / ms.median * 1e-6;
  std::printf("%-12s %-5s decode  %5d  %8.3f ms/layer (best %8.3f)  %8.3f ms/model  %6.1f GB/s (%.0f %% of memory)\n",
              m.name, dtype_name(type), context, ms.median, ms.best, ms.median * m.layers, rate, 100 * rate / limit);
}

}  // namespace
}  // namespace galvani::kernels

int main(int argc, char** argv) {
  using namespace galvani;
  using namespace galvani::kernels;
  set_threads(argc > 1 ? std::atoi(argv[1]) : 0);
  const double limit = read_gbs();
  std::printf("%d threads, memory reads %.1f GB/s\n", threads(), limit);
  const Model smollm2{"SmolLM2-135M", 9, 3, 64, 64, 30, 0}, gemma{"Gemma3-270M", 4, 1, 256, 256, 18, 512};
  const Model llama8b{"Llama-8B", 32, 8, 128, 128, 32, 0};
  // DeepSeek-V2-Lite's widths, absorbed, and the same heads with keys and values written out.
  const Model latent{"latent", 16, 1, 576, 512, 27, 0, true}, written_out{"written out", 16, 16, 192, 128, 27, 0};
  for (const Model& m : {smollm2, gemma, llama8b, latent, written_out}) {
    for (DType type : {DType::kF32, DType::kBF16}) prefill(m, type, 512);
  }
  for (DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int context : {128, 600, 4096}) decode(smollm2, type, context, limit);
    decode(gemma, type, 600, limit);
    for (int context : {600, 4096}) decode(latent, type, context, limit);
  }
  return 0;
}
