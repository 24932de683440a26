#pragma once
// Float codes in the mma.sync kernel for many tokens: as with few tokens, codes are exact in the tensor product and
// scales are applied to sums in f32, so this arm takes every matrix in either activation type.
#include "kernels/qmatmul/a16_float.cuh"
#include "kernels/qmatmul/qmatmul_cuda_args.h"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// Fragments and scales of two k16 steps: half a unit, one group of 32 or two of 16 (`four` a unit).
template <int kInstance, typename T>
struct MmaFloatHalf {
  unsigned a[2][4];
  float scale[2][2];  ///< of step and row; of the second step alone for groups of 32

  template <int kHalf>
  GALVANI_DEVICE void load(const A16Codes<kInstance, T>& codes, const unsigned char* unit, bool four, int lane) {
    a16_fragment<2 * kHalf>(a[0], codes);
    a16_fragment<2 * kHalf + 1>(a[1], codes);
    const unsigned char* const at = unit + a16_word_bytes(a16_bits(kInstance));
    if (four) {
      const unsigned bytes = *reinterpret_cast<const unsigned*>(at + lane / 4 * 8 + 4 * kHalf);
#pragma unroll
      for (int i = 0; i < 4; ++i) scale[i / 2][i % 2] = __uint_as_float(a16_scale_f32(A16Scale::kE5M3, bytes, i));
    } else {
      const unsigned bytes = *reinterpret_cast<const unsigned short*>(at + lane / 4 * 4 + 2 * kHalf);
#pragma unroll
      for (int i = 0; i < 2; ++i) scale[0][i] = scale[1][i] = __uint_as_float(a16_scale_f32(A16Scale::kE8M0, bytes, i));
    }
  }
};

/// acc += half a unit of K. x_at: this lane's ldmatrix address of the first token's first column of the half; tokens
/// kXRow bytes apart.
template <int kXRow, int kRowTiles, int kTokenTiles, int kInstance, typename T>
GALVANI_DEVICE void mma_float_half(float (&acc)[kRowTiles][kTokenTiles][4],
                                   const MmaFloatHalf<kInstance, T> (&w)[kRowTiles], unsigned x_at, bool four) {
#pragma unroll
  for (int n = 0; n < kTokenTiles; n += 2) {
    float part[kRowTiles][2][4] = {};
#pragma unroll
    for (int step = 0; step < 2; ++step) {
      unsigned x[4];  // tokens n…n+7: k low, k high; the next eight likewise
      ldmatrix_x4(x, x_at + n * 8 * kXRow + step * 32);
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        mma_m16n8k16<T>(part[r][0], w[r].a[step], {x[0], x[1]});
        mma_m16n8k16<T>(part[r][1], w[r].a[step], {x[2], x[3]});
      }
      if (step == 0 && !four) continue;
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r)
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          float& to = acc[r][n + i / 4][i % 4];
          to = fmaf(w[r].scale[step][i % 4 / 2], part[r][i / 4][i % 4], to);
          part[r][i / 4][i % 4] = 0.0f;
        }
    }
  }
}

/// acc += one unit.
template <int kXRow, int kRowTiles, int kTokenTiles, int kInstance, typename T>
GALVANI_DEVICE void mma_float_unit(float (&acc)[kRowTiles][kTokenTiles][4],
                                   const A16Codes<kInstance, T> (&codes)[kRowTiles],
                                   const unsigned char* const (&unit)[kRowTiles], unsigned x_at, bool four, int lane) {
  MmaFloatHalf<kInstance, T> w[kRowTiles];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) w[r].template load<0>(codes[r], unit[r], four, lane);
  mma_float_half<kXRow>(acc, w, x_at, four);
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) w[r].template load<1>(codes[r], unit[r], four, lane);
  mma_float_half<kXRow>(acc, w, x_at + 64, four);
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
