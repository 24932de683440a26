#pragma once
/// Loads and stores of f32, f16 and bf16 whose type is known at run time, and block-wide sums. NVRTC compiles it alone.
#include "kernels/common/device.cuh"
#include "kernels/common/store_type.h"

namespace galvani::kernels {

/// A kernel K that may be launched as dependent calls release_next(), first of all unless something was measured to be
/// better, and wait_for_previous() in every thread before it writes anything, and before it reads what a kernel before
/// it writes. Nothing below 9.0, where no kernel is launched that way.
///
/// Why the release may come first. It only lets K + 1 become resident, once all blocks of K have begun; K + 1's own
/// wait returns when K has ended and what K wrote is visible, and K ends only after its own wait has returned. So by
/// induction all kernels before K + 1 have ended then: nothing is read too early, no buffer is written over while one
/// of them still reads it, and every thread of K waits, or K could end before K - 1. Nobody waits for a place: blocks
/// of K + 1 are placed when all those of K have theirs.
///
/// What may be loaded before the wait (load_early): what no kernel of the chain writes. Weights, and tables that copies
/// brought before the chain's first kernel; a copy in between ends the chain, since a kernel after it starts when it is
/// done.
__device__ __forceinline__ void release_next() { GALVANI_CUDA_NS::dependency_release(); }
__device__ __forceinline__ void wait_for_previous() { GALVANI_CUDA_NS::dependency_wait(); }
/// Both, for kernels that load nothing before.
__device__ __forceinline__ void start_dependent() {
  release_next();
  wait_for_previous();
}
/// From L2: a line in L1 may be of the step before, since it is the wait that promises otherwise.
template <typename T>
__device__ __forceinline__ T load_early(const T* from) {
  return __ldcg(from);
}

/// A one-dimensional grid over rows of `count` threads each, in whole blocks, a row's blocks side by side: so memory is
/// walked in its own order (blocks of different rows side by side took twice the time at 8192 rows).
struct RowThread {
  long long row;
  int thread;  ///< may be beyond count
};
__device__ __forceinline__ RowThread row_thread(int count) {
  const unsigned blocks = (static_cast<unsigned>(count) + blockDim.x - 1) / blockDim.x, row = blockIdx.x / blocks;
  return {row, static_cast<int>((blockIdx.x - row * blocks) * blockDim.x + threadIdx.x)};
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
/// The same with one barrier. shared: 32 floats that nothing else in the kernel uses, one set for each sum.
__device__ __forceinline__ float block_sum_once(float x, float* shared) {
  x = warp_sum(x);
  const int warps = (blockDim.x + 31) >> 5, lane = threadIdx.x & 31;
  if (lane == 0) shared[threadIdx.x >> 5] = x;
  __syncthreads();
  return warp_sum(lane < warps ? shared[lane] : 0.0f);
}

}  // namespace galvani::kernels
