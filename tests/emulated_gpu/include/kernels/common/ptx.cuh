#pragma once
// kernels/common/ptx.cuh in C++: the same functions for the emulated build.
#include "kernels/common/device.cuh"

#define GALVANI_DYNAMIC_SHARED(type, name, alignment) \
  type* const name = static_cast<type*>(::galvani::emulated::dynamic_shared())

namespace galvani::kernels::GALVANI_CUDA_NS {

[[noreturn]] inline void wrong_arch() { emulated::fault("a body that this architecture cannot run"); }

inline unsigned shared_address(const void* pointer) { return emulated::shared_address(pointer); }
inline void store_shared_16(unsigned to, uint4 v) {
  if (to % 16 != 0) emulated::fault("st.shared.v4: the address is not a multiple of 16");
  std::memcpy(emulated::shared_pointer(to, 16), &v, 16);
}
inline uint4 load_once(const uint4* pointer) { return *pointer; }

inline uint4 load_streamed(const void* pointer) { return *static_cast<const uint4*>(pointer); }

inline void dependency_wait() {}
inline void dependency_release() {}

template <int kRegisters>
void registers_up() {
#if !GALVANI_ARCH_SPECIFIC
  wrong_arch();
#endif
}
template <int kRegisters>
void registers_down() {
#if !GALVANI_ARCH_SPECIFIC
  wrong_arch();
#endif
}
inline void prefetch_l2(const void*) {}
inline unsigned not_hoisted(unsigned x) { return x; }
inline void named_barrier(int id, int threads) { emulated::barrier(id, threads); }
inline void named_barrier_arrive(int id, int threads) { emulated::barrier_arrive(id, threads); }

inline void add_vector([[maybe_unused]] float* to, [[maybe_unused]] float4 v) {
#if __CUDA_ARCH__ >= 900
  if (reinterpret_cast<uintptr_t>(to) % 16 != 0) emulated::fault("red.v4: the address is not a multiple of 16");
  to[0] += v.x, to[1] += v.y, to[2] += v.z, to[3] += v.w;
#else
  wrong_arch();
#endif
}

inline float exp2_fast(float x) {
  const float y = std::exp2(x);
  return y < 0x1p-126f ? 0.0f : y;
}

inline float reciprocal_fast(float x) {
  const float y = 1.0f / x;
  return std::fabs(y) < 0x1p-126f ? 0.0f : y;
}

template <unsigned kMask>
unsigned and_or(unsigned a, unsigned c) {
  return (a & kMask) | c;
}
template <unsigned kMask>
unsigned and_xor(unsigned a, unsigned c) {
  return (a & kMask) ^ c;
}

inline unsigned kept(unsigned value) { return value; }
inline bool elect_one() { return lane_id() == 0; }
inline int warp_uniform(int value) { return __shfl_sync(kFullMask, value, 0); }

/// a · b + c of each half, rounded once.
template <typename T>
unsigned fma2(unsigned a, unsigned b, unsigned c) {
  unsigned result = 0;
  for (int half = 0; half < 2; ++half) {
    T x[3];
    const unsigned in[3] = {a, b, c};
    for (int i = 0; i < 3; ++i) x[i].bits = static_cast<unsigned short>(in[i] >> (16 * half));
    const double sum = static_cast<double>(float(x[0])) * float(x[1]) + static_cast<double>(float(x[2]));
    result |= static_cast<unsigned>(T(emulated::round_to_odd(sum)).bits) << (16 * half);
  }
#if __CUDA_ARCH__ < 800
  if constexpr (kSameType<T, bf16>) wrong_arch();
#endif
  return result;
}
template <typename T>
unsigned add2(unsigned a, unsigned b) {
  constexpr unsigned kOne = kSameType<T, bf16> ? 0x3f803f80u : 0x3c003c00u;
  return fma2<T>(a, kOne, b);
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
