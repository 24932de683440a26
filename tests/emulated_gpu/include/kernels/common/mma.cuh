#pragma once
// kernels/common/mma.cuh in C++. Products are exact; tensor_sum.h says how they are added.
#include "emulated_gpu/tensor_sum.h"
#include "kernels/common/device.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

struct EmulatedLdmatrix {
  unsigned address;
  unsigned* registers;
};
template <int kMatrices, bool kTransposed>
void emulated_ldmatrix(unsigned* r, unsigned shared) {
#if __CUDA_ARCH__ >= 750
  EmulatedLdmatrix mine{shared, r};
  emulated::collective(kFullMask, kTransposed ? "ldmatrix.trans" : "ldmatrix", &mine,
                       [](void* const* lanes, unsigned mask) {
                         if (mask != kFullMask) emulated::fault("ldmatrix: not all lanes of the warp are there");
                         for (int m = 0; m < kMatrices; ++m) {
                           unsigned short matrix[8][8];
                           for (int row = 0; row < 8; ++row) {
                             const unsigned address = static_cast<EmulatedLdmatrix*>(lanes[8 * m + row])->address;
                             if (address % 16 != 0)
                               emulated::fault("ldmatrix: a row's address is not a multiple of 16");
                             std::memcpy(matrix[row], emulated::shared_pointer(address, 16), 16);
                           }
                           for (int lane = 0; lane < 32; ++lane) {
                             const int a = lane / 4, b = lane % 4 * 2;
                             const unsigned low = kTransposed ? matrix[b][a] : matrix[a][b];
                             const unsigned high = kTransposed ? matrix[b + 1][a] : matrix[a][b + 1];
                             static_cast<EmulatedLdmatrix*>(lanes[lane])->registers[m] = low | (high << 16);
                           }
                         }
                       });
#else
  wrong_arch();
#endif
}
inline void ldmatrix_x4(unsigned (&r)[4], unsigned shared) { emulated_ldmatrix<4, false>(r, shared); }
inline void ldmatrix_x2(unsigned (&r)[2], unsigned shared) { emulated_ldmatrix<2, false>(r, shared); }
inline void ldmatrix_x4_trans(unsigned (&r)[4], unsigned shared) { emulated_ldmatrix<4, true>(r, shared); }

/// Half `i` of a register.
template <typename T>
float emulated_half(unsigned v, int i) {
  T x;
  x.bits = static_cast<unsigned short>(v >> (16 * i));
  return x;
}

template <typename T>
struct EmulatedMma {
  float* c;
  const unsigned *a, *b;
};
template <typename T>
void mma_m16n8k16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ < 750
  wrong_arch();
#endif
#if __CUDA_ARCH__ < 800
  if constexpr (kSameType<T, bf16>) wrong_arch();
#endif
  EmulatedMma<T> mine{c, a, b};
  emulated::collective(kFullMask, "mma", &mine, [](void* const* lanes, unsigned mask) {
    if (mask != kFullMask) emulated::fault("mma: not all lanes of the warp are there");
    float a[16][16], b[16][8], c[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const auto& in = *static_cast<EmulatedMma<T>*>(lanes[lane]);
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 2; ++i) {
        for (int r = 0; r < 4; ++r) a[g + r % 2 * 8][2 * t + i + r / 2 * 8] = emulated_half<T>(in.a[r], i);
        for (int r = 0; r < 2; ++r) b[2 * t + i + r * 8][g] = emulated_half<T>(in.b[r], i);
        for (int r = 0; r < 2; ++r) c[g + r * 8][2 * t + i] = in.c[2 * r + i];
      }
    }
    emulated::tensor_product<__CUDA_ARCH__, kSameType<T, f16>>(c, a, b);
    for (int lane = 0; lane < 32; ++lane) {
      auto& out = *static_cast<EmulatedMma<T>*>(lanes[lane]);
      for (int i = 0; i < 4; ++i) out.c[i] = c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    }
  });
}
inline void mma_m16n8k16_bf16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  mma_m16n8k16<bf16>(c, a, b);
}
inline void mma_m16n8k16_f16(float (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  mma_m16n8k16<f16>(c, a, b);
}

struct EmulatedMmaBytes {
  int* c;
  const unsigned *a, *b;
};
inline void mma_m16n8k32_s8(int (&c)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
#if __CUDA_ARCH__ < 800
  wrong_arch();
#endif
  EmulatedMmaBytes mine{c, a, b};
  emulated::collective(kFullMask, "mma", &mine, [](void* const* lanes, unsigned mask) {
    if (mask != kFullMask) emulated::fault("mma: not all lanes of the warp are there");
    int a[16][32], b[32][8], c[16][8];
    for (int lane = 0; lane < 32; ++lane) {
      const auto& in = *static_cast<EmulatedMmaBytes*>(lanes[lane]);
      const int g = lane / 4, t = lane % 4;
      for (int i = 0; i < 4; ++i) {
        for (int r = 0; r < 4; ++r)
          a[g + r % 2 * 8][4 * t + i + r / 2 * 16] = static_cast<signed char>(in.a[r] >> 8 * i);
        for (int r = 0; r < 2; ++r) b[4 * t + i + r * 16][g] = static_cast<signed char>(in.b[r] >> 8 * i);
        c[g + i / 2 * 8][2 * t + i % 2] = in.c[i];
      }
    }
    for (int row = 0; row < 16; ++row)
      for (int k = 0; k < 32; ++k)
        for (int col = 0; col < 8; ++col) c[row][col] += a[row][k] * b[k][col];
    for (int lane = 0; lane < 32; ++lane) {
      auto& out = *static_cast<EmulatedMmaBytes*>(lanes[lane]);
      for (int i = 0; i < 4; ++i) out.c[i] = c[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2];
    }
  });
}

inline unsigned transpose8x8(unsigned x) {
#if __CUDA_ARCH__ < 750
  wrong_arch();
#endif
  emulated::collective(kFullMask, "movmatrix", &x, [](void* const* lanes, unsigned mask) {
    if (mask != kFullMask) emulated::fault("movmatrix: not all lanes of the warp are there");
    unsigned in[32];
    for (int l = 0; l < 32; ++l) in[l] = *static_cast<unsigned*>(lanes[l]);
    const auto element = [&](int row, int col) { return (in[row * 4 + col / 2] >> (col % 2 * 16)) & 0xffffu; };
    for (int l = 0; l < 32; ++l)
      *static_cast<unsigned*>(lanes[l]) = element(l % 4 * 2, l / 4) | (element(l % 4 * 2 + 1, l / 4) << 16);
  });
  return x;
}

template <typename T>
unsigned pack2(float low, float high) {
  return static_cast<unsigned>(T(low).bits) | (static_cast<unsigned>(T(high).bits) << 16);
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
