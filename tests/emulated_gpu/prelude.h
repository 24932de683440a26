#pragma once
/// CUDA C++'s keywords, built-in variables and functions for the host compiler; included before every kernel file of
/// the emulated build, as nvcc includes cuda_runtime.h. What device code here uses, and no more: a missing name is a
/// compile error. Vector types and conversions follow the CUDA C++ Programming Guide and the CUDA Math API.
#include <atomic>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "emulated_gpu/block.h"
#include "emulated_gpu/kernels.h"
#include "emulated_gpu/warp.h"

// kernel_table.h's, with GALVANI_CUDA_ARCH as the build sets it.
#define GALVANI_KERNEL_ADDRESS(kernel) ::galvani::emulated::remember(kernel, GALVANI_STRING(GALVANI_CUDA_ARCH))
#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __noinline__
#define __launch_bounds__(...)
#define __maxnreg__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))
// A block's threads run on one operating system thread, which runs no other block meanwhile, except those of its
// cluster: kernels launched in clusters have dynamic shared memory only.
#define __shared__ static thread_local

#define threadIdx (::galvani::emulated::current_thread->thread)
#define blockIdx (::galvani::emulated::current_thread->block)
#define blockDim (::galvani::emulated::current_thread->block_dim)
#define gridDim (::galvani::emulated::current_thread->grid_dim)

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
struct alignas(8) uint2 {
  unsigned x, y;
};
struct alignas(16) uint4 {
  unsigned x, y, z, w;
};
struct alignas(16) int4 {
  int x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }

inline int min(int a, int b) { return a < b ? a : b; }
inline int max(int a, int b) { return a > b ? a : b; }
inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
inline long long min(long long a, long long b) { return a < b ? a : b; }
inline long long max(long long a, long long b) { return a > b ? a : b; }
inline float min(float a, float b) { return fminf(a, b); }
inline float max(float a, float b) { return fmaxf(a, b); }

inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
inline float __fadd_rn(float a, float b) { return galvani::emulated::unfused(a + b); }
inline float __fsub_rn(float a, float b) { return galvani::emulated::unfused(a - b); }
inline float __fmul_rn(float a, float b) { return galvani::emulated::unfused(a * b); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fdividef(float a, float b) { return std::fabs(b) > 0x1p126f ? (std::isinf(a) ? NAN : 0.0f) : a / b; }
inline unsigned long long __float2ull_rn(float x) {
  // What does not fit saturates; NaN is 2^63 (PTX ISA, cvt).
  if (std::isnan(x)) return 0x8000000000000000ull;
  if (x <= 0) return 0;
  if (x >= 0x1p64f) return ~0ull;
  return static_cast<unsigned long long>(std::nearbyint(x));
}
inline unsigned __umulhi(unsigned a, unsigned b) { return static_cast<unsigned>((static_cast<uint64_t>(a) * b) >> 32); }
inline int __ffs(int x) { return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1; }
inline int __popc(unsigned x) { return std::popcount(x); }
inline int __clz(int x) { return std::countl_zero(static_cast<unsigned>(x)); }
inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
  return static_cast<unsigned>(((static_cast<uint64_t>(high) << 32) | low) >> (by & 31));
}
/// Byte i of the result is byte (selector >> 4i) & 7 of y:x, or its sign eight times when bit 3 is set.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned selector) {
  const uint64_t both = (static_cast<uint64_t>(y) << 32) | x;
  unsigned result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned pick = (selector >> (4 * i)) & 15;
    unsigned byte = static_cast<unsigned>(both >> (8 * (pick & 7))) & 255;
    if ((pick & 8) != 0) byte = (byte & 128) != 0 ? 255 : 0;
    result |= byte << (8 * i);
  }
  return result;
}
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }
inline float __expf(float x) { return std::exp(x); }
inline float __logf(float x) { return std::log(x); }

template <typename T>
T __ldg(const T* from) {
  return *from;
}
template <typename T>
T __ldcg(const T* from) {
  return *from;
}
template <typename T>
T __ldcs(const T* from) {
  return *from;
}
template <typename T>
T atomicAdd(T* to, T value) {
  return std::atomic_ref<T>(*to).fetch_add(value);
}
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __syncthreads() { galvani::emulated::barrier(0); }
[[noreturn]] inline void __trap() { galvani::emulated::fault("trap"); }

using galvani::emulated::__any_sync;
using galvani::emulated::__ballot_sync;
using galvani::emulated::__shfl_down_sync;
using galvani::emulated::__shfl_sync;
using galvani::emulated::__shfl_up_sync;
using galvani::emulated::__shfl_xor_sync;
using galvani::emulated::__syncwarp;
