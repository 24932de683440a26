#pragma once
/// What the attention kernels share on the device: scores and matrix instructions. NVRTC compiles it alone.
#include "kernels/attention/attention_cuda_args.h"
#include "kernels/common/mma.cuh"
#include "kernels/common/store.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS::attn {

constexpr int kPage = 64;  // tokens, attention.h's kPageTokens
constexpr float kLog2E = 1.44269504088896341f;

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

/// The score of q·k in units of log 2. tanh through one power: within 1e-6 of tanh, absolute.
__device__ __forceinline__ float score_log2(float dot, const ScoreArgs& args) {
  float x = dot * args.scale;
  if (args.softcap > 0) {
    const float e = exp2_fast(x * (2 * kLog2E / args.softcap));
    x = args.softcap * (1.0f - __fdividef(2.0f, e + 1.0f));
    if (e > 1e38f) x = args.softcap;  // __fdividef gives 0 or NaN beyond 2^126
  }
  return x * kLog2E;
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS::attn
