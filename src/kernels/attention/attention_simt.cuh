#pragma once
/// Attention of rows in f32 arithmetic without matrix instructions: every width, every type of pages, every part. One
/// block a (row, head); slow and obvious. NVRTC compiles it alone.
#include "kernels/attention/attention_device.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS::attn {

constexpr int kSimtWarps = 4;
constexpr int kSimtDims = 16;  // value dims a lane holds: v_dim ≤ 512

/// Shared memory, bytes: the query, the warps' sums and their statistics.
constexpr int simt_shared_bytes(int k_dim, int v_dim) { return 4 * (k_dim + kSimtWarps * (v_dim + 2)); }

/// Grid: (rows, heads); block: 32 · kSimtWarps.
template <typename T>
__device__ __forceinline__ void attention_simt(const AttentionRowsArgs& args) {
  GALVANI_DYNAMIC_SHARED(float, simt_shared, 4);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, head = blockIdx.y;
  const int row = args.at != nullptr ? args.at[blockIdx.x] : blockIdx.x;
  const int k_dim = args.kv.k_dim, v_dim = args.kv.v_dim, position = args.positions[row];
  const long long out_at = row * args.out_stride + static_cast<long long>(head) * v_dim;
  if (position < 0) {
    for (int i = threadIdx.x; i < v_dim; i += blockDim.x) store_as(args.out, out_at + i, 0.0f, args.out_type);
    return;
  }
  float* query = simt_shared;
  float* sums = query + k_dim;               // [warps][v_dim]
  float* stats = sums + kSimtWarps * v_dim;  // [warps][2]
  const T* q = static_cast<const T*>(args.q) + row * args.q_stride + static_cast<long long>(head) * k_dim;
  for (int i = threadIdx.x; i < k_dim; i += blockDim.x) query[i] = to_float(q[i]);
  __syncthreads();

  const int kv_head = head / (args.heads / args.kv.kv_heads);
  const int* blocks = args.tables.blocks + static_cast<long long>(args.sequence[row]) * args.tables.max_blocks;
  const int first = args.score.window > 0 ? max(0, position - args.score.window + 1) : 0;
  float peak = minus_infinity(), sum = 0, o[kSimtDims];
#pragma unroll
  for (int j = 0; j < kSimtDims; ++j) o[j] = 0;
  for (int key = first + warp; key <= position; key += kSimtWarps) {
    const long long page = blocks[key / kPage];
    const long long at = static_cast<long long>(kv_head) * kPage + key % kPage;
    const T* k = reinterpret_cast<const T*>(args.kv.k + page * args.kv.k_page_stride) + at * k_dim;
    const T* v = reinterpret_cast<const T*>(args.kv.v + page * args.kv.v_page_stride) + at * v_dim;
    float dot = 0;
    for (int i = lane; i < k_dim; i += 32) dot += query[i] * to_float(k[i]);
    for (int step = 16; step > 0; step /= 2) dot += __shfl_xor_sync(0xffffffffu, dot, step);
    const float score = score_log2(dot, args.score), higher = fmaxf(peak, score);
    const float factor = exp2_fast(peak - higher), weight = exp2_fast(score - higher);
    peak = higher;
    sum = sum * factor + weight;
#pragma unroll
    for (int j = 0; j < kSimtDims; ++j)
      if (lane + 32 * j < v_dim) o[j] = o[j] * factor + weight * to_float(v[lane + 32 * j]);
  }
#pragma unroll
  for (int j = 0; j < kSimtDims; ++j)
    if (lane + 32 * j < v_dim) sums[warp * v_dim + lane + 32 * j] = o[j];
  if (lane == 0) {
    stats[2 * warp] = peak;
    stats[2 * warp + 1] = sum;
  }
  __syncthreads();
  const float sink = args.sinks != nullptr ? args.sinks[head] * kLog2E : minus_infinity();
  float highest = sink, total = 0;
  for (int w = 0; w < kSimtWarps; ++w) highest = fmaxf(highest, stats[2 * w]);
  for (int w = 0; w < kSimtWarps; ++w)
    if (first + w <= position) total += stats[2 * w + 1] * exp2_fast(stats[2 * w] - highest);
  if (args.sinks != nullptr) total += exp2_fast(sink - highest);
  for (int i = threadIdx.x; i < v_dim; i += blockDim.x) {
    float x = 0;
    for (int w = 0; w < kSimtWarps; ++w)
      if (first + w <= position) x += sums[w * v_dim + i] * exp2_fast(stats[2 * w] - highest);
    store_as(args.out, out_at + i, x / total, args.out_type);
  }
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS::attn
