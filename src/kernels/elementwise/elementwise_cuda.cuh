#pragma once
/// Gated activations, the logits' last step, embedding look-up. NVRTC compiles it alone.
#include "kernels/common/store.cuh"
#include "kernels/elementwise/elementwise_cuda_args.h"

namespace galvani::kernels {

/// elementwise.h's formulas; gelu_tanh as g·sigmoid(2√(2/π)·(g + 0.044715 g³)).
__device__ __forceinline__ float gated_value(float g, float u, const GatedArgs& args) {
  switch (args.kind) {
    case Gate::kSilu: return g / (1.0f + expf(-g)) * u;
    case Gate::kGeluTanh: return g / (1.0f + expf(-1.5957691216057308f * (g + 0.044715f * g * g * g))) * u;
    case Gate::kSwigluClamped: {
      const float gate = g > args.limit ? args.limit : g;  // NaN stays NaN
      const float up = u > args.limit ? args.limit : u < -args.limit ? -args.limit : u;
      return (up + 1.0f) * (gate / (1.0f + expf(-args.alpha * gate)));
    }
    case Gate::kSigmoid: return u / (1.0f + expf(-g));
  }
  return 0;
}

/// Grid: (rows, enough blocks for dim); block: any.
__device__ __forceinline__ void gated(const GatedArgs& args) {
  const long long row = blockIdx.x;
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= args.dim) return;
  float g = args.gate[row * args.gate_stride + i], u = load_as(args.up, row * args.up_stride + i, args.up_type);
  if (args.gate_bias != nullptr) g += args.gate_bias[i];
  if (args.up_bias != nullptr) u += args.up_bias[i];
  store_as(args.out, row * args.out_stride + i, gated_value(g, u, args), args.out_type);
}

/// Grid: (rows, enough blocks for dim); block: any.
__device__ __forceinline__ void finish_rows(const FinishArgs& args) {
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= args.dim) return;
  float* at = args.x + blockIdx.x * args.stride + i;
  float x = (*at + (args.bias != nullptr ? args.bias[i] : 0.0f)) * args.scale;
  if (args.cap > 0) x = args.cap * tanhf(x / args.cap);
  *at = x;
}

/// Grid: (rows, enough blocks for dim); block: any. What is counted is rare, so that the counters are no bottleneck.
__device__ __forceinline__ void count_values(const CountArgs& args) {
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= args.dim) return;
  const float size = fabsf(args.x[blockIdx.x * args.stride + i]);
  if (!(size <= 3.402823466e38f))
    atomicAdd(args.counters, 1ull);
  else if (size > args.largest)
    atomicAdd(args.counters + 1, 1ull);
}

/// Code c of a row of `bits`-wide codes, a little-endian bit stream of 32-bit words.
__device__ __forceinline__ unsigned stream_code(const unsigned* row, int bits, int c) {
  const int bit = c * bits, word = bit >> 5, shift = bit & 31;
  unsigned value = row[word] >> shift;
  if (shift + bits > 32) value |= row[word + 1] << (32 - shift);
  return value & ((1u << bits) - 1);
}

/// Grid: (rows, enough blocks for dim); block: any.
__device__ __forceinline__ void embed_rows(const EmbedArgs& args) {
  const long long row = blockIdx.x, token = args.tokens[row];
  const int i = blockIdx.y * blockDim.x + threadIdx.x;
  if (i >= args.dim) return;
  float value = 0;
  if (token >= 0) {
    if (args.bits == 0) {
      value = load_as(args.table, token * args.dim + i, args.type);
    } else {
      const unsigned* codes = static_cast<const unsigned*>(args.table) + token * (args.dim * args.bits / 32);
      const long long group = token * (args.dim / args.group) + i / args.group;
      // affine.h: multiply, then add, each rounded.
      value = __fadd_rn(
          __fmul_rn(load_as(args.scales, group, args.type), static_cast<float>(stream_code(codes, args.bits, i))),
          load_as(args.biases, group, args.type));
    }
  }
  args.out[row * args.dim + i] = value * args.scale;
}

}  // namespace galvani::kernels
