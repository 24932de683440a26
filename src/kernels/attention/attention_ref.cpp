#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/attention/attention.h"

namespace galvani::kernels {
namespace {

double element(const std::byte* base, DType dtype, int64_t index) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, base + index * 4, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, base + index * 2, 2);
  return dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

/// One head of one row. q: [k_dim]; out: [v_dim].
void attend(const KvLayer& layer, const AttentionParams& params, const AttentionChunk& chunk, int32_t position,
            int head, const float* q, double* out) {
  const int kv_head = head / (params.heads / layer.kv_heads);
  const int32_t first = params.window > 0 ? std::max(0, position - params.window + 1) : 0;
  std::vector<double> scores;
  double peak = params.sinks ? params.sinks[head] : -INFINITY;
  for (int32_t t = first; t <= position; ++t) {
    const std::byte* page = layer.k + chunk.blocks[t / kPageTokens] * layer.k_page_stride;
    const int64_t row = (int64_t{kv_head} * kPageTokens + t % kPageTokens) * layer.k_dim;
    double score = 0;
    for (int i = 0; i < layer.k_dim; ++i) score += q[i] * element(page, layer.dtype, row + i);
    score *= params.scale;
    if (params.softcap > 0) score = params.softcap * std::tanh(score / params.softcap);
    scores.push_back(score);
    peak = std::max(peak, score);
  }
  double sum = params.sinks ? std::exp(params.sinks[head] - peak) : 0.0;
  std::fill_n(out, layer.v_dim, 0.0);
  for (int32_t t = first; t <= position; ++t) {
    const double weight = std::exp(scores[static_cast<size_t>(t - first)] - peak);
    const int32_t block = chunk.blocks[t / kPageTokens];
    const std::byte* page =
        layer.v_in_k ? layer.k + block * layer.k_page_stride : layer.v + block * layer.v_page_stride;
    const int64_t row = (int64_t{kv_head} * kPageTokens + t % kPageTokens) * (layer.v_in_k ? layer.k_dim : layer.v_dim);
    for (int i = 0; i < layer.v_dim; ++i) out[i] += weight * element(page, layer.dtype, row + i);
    sum += weight;
  }
  for (int i = 0; i < layer.v_dim; ++i) out[i] /= sum;
}

}  // namespace

void attention_ref(const KvLayer& layer, const AttentionParams& params, std::span<const AttentionChunk> chunks,
                   const float* q, int64_t q_stride, double* out, int64_t out_stride) {
  for (const AttentionChunk& chunk : chunks) {
    for (int32_t i = 0; i < chunk.count; ++i) {
      for (int head = 0; head < params.heads; ++head) {
        attend(layer, params, chunk, chunk.first_position + i, head,
               q + (chunk.row + i) * q_stride + head * layer.k_dim,
               out + (chunk.row + i) * out_stride + head * layer.v_dim);
      }
    }
  }
}

}  // namespace galvani::kernels
