#pragma once
/// What the attention kernels share on the device: scores and matrix instructions. NVRTC compiles it alone.
#include "kernels/attention/attention_cuda_args.h"
#include "kernels/common/store.cuh"

namespace galvani::kernels::attn {

constexpr int kPage = 64;  // tokens, attention.h's kPageTokens
constexpr float kLog2E = 1.44269504088896341f;

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

__device__ __forceinline__ float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

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

/// d += a · b, m16n8k16, f32 sums. Turing has k8 only, and f16 only.
template <typename T>
__device__ __forceinline__ void mma16816(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1);
template <>
__device__ __forceinline__ void mma16816<__half>(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#elif __CUDA_ARCH__ >= 750
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b0));
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5}, {%6}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[2]), "r"(a[3]), "r"(b1));
#else
  __trap();
#endif
}
template <>
__device__ __forceinline__ void mma16816<__nv_bfloat16>(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                                        unsigned b1) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  __trap();
#endif
}

/// Transposes the warp's 8×8 matrix of 16-bit elements (row = lane / 4, columns 2·(lane % 4) and the next).
__device__ __forceinline__ unsigned transpose8x8(unsigned x) {
#if __CUDA_ARCH__ >= 750
  unsigned y;
  asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(y) : "r"(x));
  return y;
#else
  __trap();
  return x;
#endif
}

}  // namespace galvani::kernels::attn
