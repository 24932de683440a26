#pragma once
/// Gated activations, the logits' last step, embedding look-up. NVRTC compiles it alone.
#include "kernels/common/four.cuh"
#include "kernels/common/gate.cuh"
#include "kernels/elementwise/elementwise_cuda_args.h"

namespace galvani::kernels {

/// Four elements a thread. Grid: row_thread's; block: any.
__device__ __forceinline__ void gated(const GatedArgs& args) {
  release_next();
  const auto [row, thread] = row_thread((args.dim + 3) / 4);
  const int i = 4 * thread, dim = args.dim;
  Four g_bias = four_times(0), u_bias = four_times(0);
  if (args.gate_bias != nullptr) g_bias = load_four<true>(args.gate_bias, i, dim, by_fours(args.gate_bias, 0));
  if (args.up_bias != nullptr) u_bias = load_four<true>(args.up_bias, i, dim, by_fours(args.up_bias, 0));
  wait_for_previous();
  if (i >= dim) return;
  const Four g = load_four(args.gate + row * args.gate_stride, i, dim, by_fours(args.gate, args.gate_stride));
  const Four u = load_four_as(args.up, row * args.up_stride, i, dim, args.up_type,
                              by_fours(args.up, args.up_stride, args.up_type));
  Four y;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const float gj = g.v[j] + g_bias.v[j], uj = u.v[j] + u_bias.v[j];
    y.v[j] = args.out_type == StoreType::kF32
                 ? GALVANI_CUDA_NS::gated_value<false>(args.kind, gj, uj, args.alpha, args.limit)
                 : GALVANI_CUDA_NS::gated_value<true>(args.kind, gj, uj, args.alpha, args.limit);
  }
  store_four_as(args.out, row * args.out_stride, i, dim, y, args.out_type,
                by_fours(args.out, args.out_stride, args.out_type));
}

/// Grid: row_thread's; block: any.
__device__ __forceinline__ void finish_rows(const FinishArgs& args) {
  const auto [row, i] = row_thread(args.dim);
  if (i >= args.dim) return;
  float* at = args.x + row * args.stride + i;
  float x = (*at + (args.bias != nullptr ? args.bias[i] : 0.0f)) * args.scale;
  if (args.cap > 0) x = args.cap * tanhf(x / args.cap);
  *at = x;
}

/// Grid: row_thread's; block: any. What is counted is rare, so that the counters are no bottleneck.
__device__ __forceinline__ void count_values(const CountArgs& args) {
  const auto [row, i] = row_thread(args.dim);
  if (i >= args.dim) return;
  const float size = fabsf(args.x[row * args.stride + i]);
  if (!(size <= 3.402823466e38f))
    atomicAdd(args.counters, 1ull);
  else if (size > args.largest)
    atomicAdd(args.counters + 1, 1ull);
}

/// Codes c and those after it, as many as fit into 32 bits, of a row of `bits`-wide codes: a little-endian bit stream
/// of 32-bit words. count: how many are wanted; nothing beyond their last word is read.
__device__ __forceinline__ unsigned stream_codes(const unsigned* row, int bits, int c, int count) {
  const int bit = c * bits, word = bit >> 5, shift = bit & 31;
  const unsigned low = row[word], high = shift + count * bits > 32 ? row[word + 1] : 0;
  return __funnelshift_r(low, high, shift);
}

/// Elements i … i + kCount - 1 of a token's row, in one group.
template <int kCount>
__device__ __forceinline__ void embed_elements(const EmbedArgs& args, long long token, int i, float (&x)[kCount]) {
  if (args.bits == 0) {
    if constexpr (kCount == 4) {
      const Four four =
          load_four_as(args.table, token * args.dim, i, args.dim, args.type, by_fours(args.table, args.dim, args.type));
#pragma unroll
      for (int j = 0; j < 4; ++j) x[j] = four.v[j];
    } else {
      x[0] = load_as(args.table, token * args.dim + i, args.type);
    }
    return;
  }
  const unsigned* row = static_cast<const unsigned*>(args.table) + token * (args.dim * args.bits / 32);
  const long long group = token * (args.dim / args.group) + i / args.group;
  const unsigned codes = stream_codes(row, args.bits, i, kCount);
  const float scale = load_as(args.scales, group, args.type), bias = load_as(args.biases, group, args.type);
#pragma unroll
  for (int j = 0; j < kCount; ++j)  // affine.h: multiply, then add, each rounded
    x[j] = __fadd_rn(__fmul_rn(scale, static_cast<float>(codes >> (j * args.bits) & ((1u << args.bits) - 1))), bias);
}

/// A block's row: each thread asks for several vectors before it writes one. dim and groups are multiples of four.
__device__ __forceinline__ void embed_row_by_block(const EmbedArgs& args) {
  constexpr int kFours = 4;
  const long long row = blockIdx.x;
  const int step = 4 * static_cast<int>(blockDim.x);
  const bool by_vectors = by_fours(args.out, 0);
  wait_for_previous();
  const long long token = args.tokens[row];
  for (int begin = 4 * static_cast<int>(threadIdx.x); begin < args.dim; begin += kFours * step) {
    float x[kFours][4] = {};
#pragma unroll
    for (int k = 0; k < kFours; ++k)
      if (token >= 0 && begin + k * step < args.dim) embed_elements(args, token, begin + k * step, x[k]);
#pragma unroll
    for (int k = 0; k < kFours; ++k) {
      const Four y = {{x[k][0] * args.scale, x[k][1] * args.scale, x[k][2] * args.scale, x[k][3] * args.scale}};
      store_four_as(args.out, row * args.dim, begin + k * step, args.dim, y, StoreType::kF32, by_vectors);
    }
  }
}

/// Four elements a thread where a group is no shorter, else one. Grid: row_thread's; block: any. Or a block a row,
/// where there are fours.
__device__ __forceinline__ void embed_rows(const EmbedArgs& args) {
  release_next();
  if (gridDim.x == static_cast<unsigned>(args.rows) && args.dim % 4 == 0 && (args.bits == 0 || args.group % 4 == 0))
    return embed_row_by_block(args);
  const auto [row, thread] = row_thread(args.dim % 4 == 0 ? args.dim / 4 : args.dim);
  const int i = args.dim % 4 == 0 ? 4 * thread : thread;
  wait_for_previous();
  if (i >= args.dim) return;
  const long long token = args.tokens[row];
  if (args.dim % 4 == 0 && (args.bits == 0 || args.group % 4 == 0)) {
    float x[4] = {0, 0, 0, 0};
    if (token >= 0) embed_elements(args, token, i, x);
    const Four y = {{x[0] * args.scale, x[1] * args.scale, x[2] * args.scale, x[3] * args.scale}};
    return store_four_as(args.out, row * args.dim, i, args.dim, y, StoreType::kF32, by_fours(args.out, 0));
  }
  const int count = args.dim % 4 == 0 ? 4 : 1;
  for (int j = i; j < i + count; ++j) {
    float x[1] = {0};
    if (token >= 0) embed_elements(args, token, j, x);
    args.out[row * args.dim + j] = x[0] * args.scale;
  }
}

}  // namespace galvani::kernels
