#pragma once
// kernels/attention/attention_wgmma_mma.cuh in C++.
#include "kernels/common/wgmma.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS::attention_wgmma {

inline unsigned long long descriptor_values(unsigned shared, unsigned leading) {
  return static_cast<unsigned long long>((shared & 0x3ffffu) >> 4) |
         (static_cast<unsigned long long>(leading >> 4) << 16) | (64ull << 32) | (1ull << 62);
}
template <typename T, int kN>
void scores(float (&d)[kN / 8][4], unsigned long long a, unsigned long long b, int accumulate) {
  emulated_wgmma<T, kN, false>(&d[0][0], nullptr, a, b, accumulate);
}
template <typename T, int kN>
void add_values(float (&d)[kN / 8][4], const unsigned (&a)[4], unsigned long long b) {
  emulated_wgmma<T, kN, true>(&d[0][0], a, 0, b, 1);
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS::attention_wgmma
