#pragma once
// Float codes in the few-token kernel: codes are exact in the tensor product, scales are applied to its sums in f32.
// No offset and no bias, so no sums of x.
#include "kernels/common/mma.cuh"
#include "kernels/qmatmul/a16_float.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// kCount units in registers: out += scale · (codes · x) for the tile's rows g, g + 8 and tokens 2t, 2t + 1.
template <int kInstance, typename T, int kTiles, int kSub, int kCount>
struct FewFloatBatch {
  static constexpr int kWordBytes = a16_word_bytes(a16_bits(kInstance));
  static constexpr int kUnitBytes = kWordBytes + kA16Rows * kSub;

  A16Codes<kInstance, T> codes[kCount];
  float scales[kCount][kSub][2];

  GALVANI_DEVICE void load(const unsigned char* at, int lane) {
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      codes[u].load(at + u * kUnitBytes, lane);
      a16_float_scales<kSub>(scales[u], at + u * kUnitBytes + kWordBytes, lane);
    }
  }

  template <int kStep>
  GALVANI_DEVICE void step(float (&acc)[kCount][kSub][kTiles][4], const unsigned (&x)[kCount][kTiles][8]) const {
#pragma unroll
    for (int u = 0; u < kCount; ++u) {
      unsigned fragment[4];
      a16_fragment<kStep>(fragment, codes[u]);
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        const unsigned b[2] = {x[u][n][2 * kStep], x[u][n][2 * kStep + 1]};
        mma_m16n8k16<T>(acc[u][kStep * kSub / 4][n], fragment, b);
      }
    }
  }

  /// x_at: this lane's ldmatrix address of the first unit's first column, for each eight tokens.
  GALVANI_DEVICE void multiply(float (&out)[kTiles][4], const unsigned (&x_at)[kTiles], const float*) const {
    unsigned x[kCount][kTiles][8];
    float acc[kCount][kSub][kTiles][4] = {};
#pragma unroll
    for (int u = 0; u < kCount; ++u)
#pragma unroll
      for (int n = 0; n < kTiles; ++n) {
        unsigned low[4], high[4];
        ldmatrix_x4(low, x_at[n] + u * kA16Cols * 2);
        ldmatrix_x4(high, x_at[n] + u * kA16Cols * 2 + 64);
#pragma unroll
        for (int i = 0; i < 4; ++i) x[u][n][i] = low[i], x[u][n][4 + i] = high[i];
      }
    step<0>(acc, x);
    step<1>(acc, x);
    step<2>(acc, x);
    step<3>(acc, x);
#pragma unroll
    for (int u = 0; u < kCount; ++u)
#pragma unroll
      for (int s = 0; s < kSub; ++s)
#pragma unroll
        for (int n = 0; n < kTiles; ++n)
#pragma unroll
          for (int j = 0; j < 4; ++j) out[n][j] = fmaf(scales[u][s][j / 2], acc[u][s][n][j], out[n][j]);
  }
};

}  // namespace galvani::kernels::GALVANI_CUDA_NS
