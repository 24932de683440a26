#pragma once
// kernels/common/wgmma.cuh in C++: the warps of a warpgroup work apart, 16 rows each.
#include "kernels/common/mma.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

inline unsigned long long wgmma_descriptor(unsigned shared) {
  return static_cast<unsigned long long>((shared & 0x3ffffu) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

/// A shared-memory descriptor's fields (PTX ISA, "Matrix descriptor"), and the elements it leads to. 128-byte swizzle
/// only: address bits 4…6 are exchanged by bits 7…9.
struct EmulatedDescriptor {
  unsigned start, leading, stride;
  explicit EmulatedDescriptor(unsigned long long d)
      : start(static_cast<unsigned>(d & 0x3fffu) << 4),
        leading(static_cast<unsigned>(d >> 16 & 0x3fffu) << 4),
        stride(static_cast<unsigned>(d >> 32 & 0x3fffu) << 4) {
    if (d >> 62 != 1) emulated::fault("wgmma: the descriptor does not name the 128-byte swizzle");
    if ((d >> 49 & 7) != 0) emulated::fault("wgmma: base offsets are not emulated");
  }
  template <typename T>
  static float at(unsigned linear) {
    const unsigned address = linear ^ (((linear >> 7) & 7u) << 4);
    T x;
    std::memcpy(&x, emulated::shared_pointer(address, 2), 2);
    return x;
  }
  /// Rows of 64 elements along k, groups of eight rows `stride` apart.
  template <typename T>
  float k_major(int row, int k) const {
    return at<T>(start + static_cast<unsigned>(row / 8) * stride + static_cast<unsigned>(row % 8 * 128 + k * 2));
  }
  /// Rows of 64 elements along n, groups of eight k `stride` apart, groups of 64 n `leading` apart.
  template <typename T>
  float n_major(int k, int n) const {
    return at<T>(start + static_cast<unsigned>(n / 64) * leading + static_cast<unsigned>(k / 8) * stride +
                 static_cast<unsigned>(k % 8 * 128 + n % 64 * 2));
  }
};

/// One lane's part of D[16 × n] (+)= A · B of its warp. `d`: 4 · n/8 sums.
struct EmulatedWgmma {
  float* d;
  unsigned a[4];
  unsigned long long a_tile, b_tile;  // a_tile: 0 = A in registers
  int accumulate, warp;
};
template <typename T, int kN, bool kBAlongN>
void emulated_wgmma_run(void* const* lanes, unsigned) {
  float a[16][16], c[16][kN];
  static thread_local float b[16][kN];
  const auto& first = *static_cast<EmulatedWgmma*>(lanes[0]);
  const EmulatedDescriptor b_tile(first.b_tile);
  for (int k = 0; k < 16; ++k)
    for (int n = 0; n < kN; ++n) b[k][n] = kBAlongN ? b_tile.n_major<T>(k, n) : b_tile.k_major<T>(n, k);
  for (int lane = 0; lane < 32; ++lane) {
    const auto& in = *static_cast<EmulatedWgmma*>(lanes[lane]);
    if (in.b_tile != first.b_tile || in.accumulate != first.accumulate || in.a_tile != first.a_tile)
      emulated::fault("wgmma: the lanes of a warp name different operands");
    const int g = lane / 4, t = lane % 4;
    for (int r = 0; r < 4; ++r)
      for (int i = 0; i < 2; ++i) a[g + r % 2 * 8][2 * t + i + r / 2 * 8] = emulated_half<T>(in.a[r], i);
    for (int j = 0; j < kN / 8; ++j)
      for (int e = 0; e < 4; ++e) c[g + e / 2 * 8][8 * j + 2 * t + e % 2] = in.accumulate != 0 ? in.d[4 * j + e] : 0.0f;
  }
  if (first.a_tile != 0) {
    const EmulatedDescriptor a_tile(first.a_tile);
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < 16; ++k) a[row][k] = a_tile.k_major<T>(first.warp % 4 * 16 + row, k);
  }
  emulated::tensor_product<__CUDA_ARCH__, kSameType<T, f16>>(c, a, b);
  for (int lane = 0; lane < 32; ++lane) {
    auto& out = *static_cast<EmulatedWgmma*>(lanes[lane]);
    for (int j = 0; j < kN / 8; ++j)
      for (int e = 0; e < 4; ++e) out.d[4 * j + e] = c[lane / 4 + e / 2 * 8][8 * j + lane % 4 * 2 + e % 2];
  }
}
template <typename T, int kN, bool kBAlongN>
void emulated_wgmma(float* d, const unsigned* a, unsigned long long a_tile, unsigned long long b_tile, int accumulate) {
#if GALVANI_ARCH_SPECIFIC && __CUDA_ARCH__ == 900
  EmulatedWgmma mine{d, {}, a_tile, b_tile, accumulate, emulated::current_thread->warp};
  if (a != nullptr) std::memcpy(mine.a, a, sizeof(mine.a));
  emulated::wgmma_issue(&mine, sizeof(mine), emulated_wgmma_run<T, kN, kBAlongN>);
#else
  wrong_arch();
#endif
}

#if GALVANI_ARCH_SPECIFIC && __CUDA_ARCH__ == 900
inline void wgmma_fence() {}
inline void wgmma_commit() { emulated::wgmma_commit(); }
template <int kPending>
void wgmma_wait() {
  emulated::wgmma_wait(kPending);
}
#else
inline void wgmma_fence() { wrong_arch(); }
inline void wgmma_commit() { wrong_arch(); }
template <int kPending>
void wgmma_wait() {
  wrong_arch();
}
#endif

template <typename T, int kN>
void wgmma(float (&d)[kN / 2], const unsigned (&a)[4], unsigned long long b, int accumulate) {
  emulated_wgmma<T, kN, false>(d, a, 0, b, accumulate);
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
