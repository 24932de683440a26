#pragma once
// What all device code here starts with. Device headers compile with NVRTC alone: no host header, no standard library.
//
// Everything lives in namespace galvani::kernels::GALVANI_CUDA_NS, which the build sets for each architecture (sm90a),
// so that the same kernel compiled for two architectures is two symbols.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#ifndef GALVANI_CUDA_NS
#define GALVANI_CUDA_NS device_code
#endif
#define GALVANI_DEVICE __device__ __forceinline__

// Set by nvcc for images of one device or family: 9.0a, 10.0a/f, 12.0a/f, ...
#if defined(__CUDA_ARCH_FEAT_SM90_ALL) || defined(__CUDA_ARCH_SPECIFIC__) || defined(__CUDA_ARCH_FAMILY_SPECIFIC__)
#define GALVANI_ARCH_SPECIFIC 1
#else
#define GALVANI_ARCH_SPECIFIC 0
#endif

namespace galvani::kernels::GALVANI_CUDA_NS {

using bf16 = __nv_bfloat16;
using f16 = __half;

constexpr int kWarp = 32;
constexpr unsigned kFullMask = 0xffffffffu;

/// Whether two types are one; NVRTC brings no <type_traits>.
template <typename A, typename B>
constexpr bool kSameType = false;
template <typename A>
constexpr bool kSameType<A, A> = true;

GALVANI_DEVICE int lane_id() { return static_cast<int>(threadIdx.x) & (kWarp - 1); }

/// Sum and maximum over a warp; every lane gets the result. The order is fixed, so two runs agree bit for bit.
GALVANI_DEVICE float warp_sum(float value) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) value += __shfl_xor_sync(kFullMask, value, step);
  return value;
}
GALVANI_DEVICE float warp_max(float value) {
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(kFullMask, value, step));
  return value;
}

/// f32 ↔ storage type; rounding to nearest even.
GALVANI_DEVICE float to_f32(float x) { return x; }
GALVANI_DEVICE float to_f32(bf16 x) { return __bfloat162float(x); }
GALVANI_DEVICE float to_f32(f16 x) { return __half2float(x); }
template <typename T>
GALVANI_DEVICE T from_f32(float x);
template <>
GALVANI_DEVICE float from_f32<float>(float x) {
  return x;
}
template <>
GALVANI_DEVICE bf16 from_f32<bf16>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
GALVANI_DEVICE f16 from_f32<f16>(float x) {
  return __float2half_rn(x);
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS

#include "kernels/common/ptx.cuh"
