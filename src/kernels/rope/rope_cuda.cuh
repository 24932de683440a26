#pragma once
/// Rope tables, and the kernel between the q/k/v product and attention. NVRTC compiles it alone.
#include "kernels/common/norm_weight.cuh"
#include "kernels/common/store.cuh"
#include "kernels/rope/rope_cuda_args.h"

namespace galvani::kernels {

/// Grid: (rows, enough blocks for the pairs); block: any.
__device__ __forceinline__ void rope_table(const RopeTableArgs& args) {
  const int row = blockIdx.x, position = args.positions[row];
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= args.pairs || position < 0) return;
  float sine, cosine;
  if (position > 1 << 17) {  // rope.h: f32 would be off by more than 1e-3 rad
    double s, c;
    sincos(static_cast<double>(position) * static_cast<double>(args.inv_freq[i]), &s, &c);
    sine = static_cast<float>(s);
    cosine = static_cast<float>(c);
  } else {
    sincosf(static_cast<float>(position) * args.inv_freq[i], &sine, &cosine);
  }
  float* out = args.table + (static_cast<long long>(row) * args.pairs + i) * 2;
  out[0] = cosine * args.attention_scale;
  out[1] = sine * args.attention_scale;
}

constexpr int kQkvWarps = 4;

/// One warp a (row, head of q, k or v). Grid: (rows, heads, + 2 · kv_heads when appending, over kQkvWarps); block: 32 ·
/// kQkvWarps; dynamic shared memory: kQkvWarps · max(k_dim, v_dim) floats.
__device__ __forceinline__ void qkv_finish(const QkvArgs& args) {
  GALVANI_DYNAMIC_SHARED(float, qkv_shared, 4);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, row = blockIdx.x;
  const int k_dim = args.kv.k_dim, v_dim = args.kv.v_dim, kv_heads = args.kv.kv_heads;
  const int head = blockIdx.y * kQkvWarps + warp;
  if (head >= args.heads + (args.append ? 2 * kv_heads : 0)) return;
  const bool is_q = head < args.heads, is_v = head >= args.heads + kv_heads;
  const int dim = is_v ? v_dim : k_dim, position = args.positions[row];
  float* values = qkv_shared + warp * max(k_dim, v_dim);
  const int kv_head = is_q ? 0 : head - args.heads - (is_v ? kv_heads : 0);
  const int column = is_q ? head * k_dim : is_v ? args.v_column + kv_head * v_dim : args.k_column + kv_head * k_dim;
  const float* x = args.x + row * args.x_stride + column;

  void* out = args.q;
  long long at = row * args.q_stride + static_cast<long long>(head) * k_dim;
  if (!is_q) {
    if (position < 0) return;
    const long long page =
        args.tables.blocks[static_cast<long long>(args.sequence[row]) * args.tables.max_blocks + position / 64];
    const char* base = is_v ? args.kv.v + page * args.kv.v_page_stride : args.kv.k + page * args.kv.k_page_stride;
    out = const_cast<char*>(base);
    at = (static_cast<long long>(kv_head) * 64 + position % 64) * dim;
  }
  if (is_q && position < 0) {
    for (int i = lane; i < dim; i += 32) store_as(out, at + i, 0.0f, args.type);
    return;
  }
  float squares = 0;
  for (int i = lane; i < dim; i += 32) {
    const float y = x[i] + (args.bias != nullptr ? args.bias[column + i] : 0.0f);
    values[i] = y;
    squares += y * y;
  }
  if (is_q ? args.q_normed : is_v ? args.v_normed : args.k_normed) {
    const NormWeights& norm = is_q ? args.q_norm : is_v ? args.v_norm : args.k_norm;
    const float inverse = 1.0f / sqrtf(warp_sum(squares) / static_cast<float>(dim) + norm.eps);
    for (int i = lane; i < dim; i += 32) values[i] = values[i] * inverse * norm_weight(norm, i);
  }
  if (args.clip > 0)
    for (int i = lane; i < dim; i += 32) {
      const float y = values[i];
      values[i] = y < -args.clip ? -args.clip : y > args.clip ? args.clip : y;  // NaN stays NaN
    }
  __syncwarp();
  const float* table = args.rope + static_cast<long long>(row) * args.rope_pairs * 2;
  for (int i = lane; i < dim; i += 32) {
    float y = values[i];
    if (!is_v && args.rope != nullptr && i < 2 * args.rope_pairs) {
      const bool second = args.interleaved ? (i & 1) != 0 : i >= args.rope_pairs;
      const int pair = args.interleaved ? i >> 1 : (second ? i - args.rope_pairs : i);
      const int other = args.interleaved ? i ^ 1 : (second ? pair : pair + args.rope_pairs);
      const float cosine = table[2 * pair], sine = table[2 * pair + 1];
      y = second ? y * cosine + values[other] * sine : y * cosine - values[other] * sine;
    }
    store_as(out, at + i, y, args.type);
  }
}

}  // namespace galvani::kernels
