#pragma once
/// Loads and stores of f32, f16 and bf16 whose type is known at run time, and block-wide sums. NVRTC compiles it alone.
#include "kernels/common/device.cuh"
#include "kernels/common/store_type.h"

namespace galvani::kernels {

/// First in every kernel that may be launched as dependent: waits for what the kernel before wrote, and lets the next
/// one start its own wait. Nothing below 9.0, where no kernel is launched that way.
__device__ __forceinline__ void start_dependent() {
  GALVANI_CUDA_NS::dependency_wait();
  GALVANI_CUDA_NS::dependency_release();
}

/// Two floats as one register of T pairs, `low` in the low half.
template <typename T>
__device__ __forceinline__ unsigned pack2(float low, float high);
template <>
__device__ __forceinline__ unsigned pack2<__half>(float low, float high) {
  const __half2 v = __floats2half2_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&v);
}
template <>
__device__ __forceinline__ unsigned pack2<__nv_bfloat16>(float low, float high) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const unsigned*>(&v);
}

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

/// out[i] = x, rounded to nearest even.
__device__ __forceinline__ void store_as(void* out, long long i, float x, StoreType type) {
  if (type == StoreType::kBF16)
    static_cast<__nv_bfloat16*>(out)[i] = __float2bfloat16_rn(x);
  else if (type == StoreType::kF16)
    static_cast<__half*>(out)[i] = __float2half_rn(x);
  else
    static_cast<float*>(out)[i] = x;
}

/// out[i], out[i + 1] = x, y; the pair's address aligned to the pair.
__device__ __forceinline__ void store_pair_as(void* out, long long i, float x, float y, StoreType type) {
  if (type == StoreType::kBF16)
    *reinterpret_cast<unsigned*>(static_cast<__nv_bfloat16*>(out) + i) = pack2<__nv_bfloat16>(x, y);
  else if (type == StoreType::kF16)
    *reinterpret_cast<unsigned*>(static_cast<__half*>(out) + i) = pack2<__half>(x, y);
  else
    *reinterpret_cast<float2*>(static_cast<float*>(out) + i) = make_float2(x, y);
}

__device__ __forceinline__ float load_as(const void* in, long long i, StoreType type) {
  if (type == StoreType::kBF16) return to_float(static_cast<const __nv_bfloat16*>(in)[i]);
  if (type == StoreType::kF16) return to_float(static_cast<const __half*>(in)[i]);
  return static_cast<const float*>(in)[i];
}

/// Sum over the warp, the same in all lanes.
__device__ __forceinline__ float warp_sum(float x) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
  return x;
}

/// Sum over the block, the same in all threads; the order depends on the block's size only. shared: 33 floats.
__device__ __forceinline__ float block_sum(float x, float* shared) {
  x = warp_sum(x);
  __syncthreads();
  if ((threadIdx.x & 31) == 0) shared[threadIdx.x >> 5] = x;
  __syncthreads();
  const int warps = (blockDim.x + 31) >> 5, lane = threadIdx.x & 31;
  return warp_sum(lane < warps ? shared[lane] : 0.0f);
}

}  // namespace galvani::kernels
