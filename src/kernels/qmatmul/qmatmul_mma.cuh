#pragma once
// Many tokens with mma.sync, for any part from 7.5 (f16; bf16 from 8.0). The plain arm: right first, not tuned yet.
//
// A block: four warps, 128 rows × 64 tokens; a warp has two row tiles. x goes through two buffers of 64 tokens × 64
// columns in shared memory, rows 144 bytes apart (eight rows in different banks); weights come from global memory
// straight into registers, one unit ahead.
#include "kernels/common/copy.cuh"
#include "kernels/qmatmul/a16_dequant.cuh"
#include "kernels/qmatmul/qmatmul_mma_float.cuh"
#include "kernels/qmatmul/qmatmul_store.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

constexpr int kMmaXRow = kA16Cols * 2 + 16, kMmaXBytes = kMmaTokens * kMmaXRow;

/// A block's x tile of one unit of K: 16 bytes at a time where x allows it; zeros past k and past m.
template <typename T>
GALVANI_DEVICE void mma_load_x(const QmatmulArgs& p, unsigned char* to, int token0, int unit) {
  const T* x = static_cast<const T*>(p.x);
  const int k0 = unit * kA16Cols;
  if (p.x_aligned) {
    for (int i = threadIdx.x; i < kMmaTokens * 8; i += kMmaThreads) {
      const int token = token0 + i / 8, k = k0 + i % 8 * 8;
      const bool inside = token < p.m && k < p.k;  // k is a multiple of 8 here
      const unsigned shared = shared_address(to + i / 8 * kMmaXRow + i % 8 * 16);
      const T* from = inside ? x + token * p.x_stride + k : x;
#if __CUDA_ARCH__ >= 800
      cp_async_16_zfill(shared, from, inside ? 16 : 0);
#else
      uint4 v = {0, 0, 0, 0};
      if (inside) v = *reinterpret_cast<const uint4*>(from);
      store_shared_16(shared, v);
#endif
    }
  } else {
    for (int i = threadIdx.x; i < kMmaTokens * kA16Cols; i += kMmaThreads) {
      const int token = token0 + i / kA16Cols, k = k0 + i % kA16Cols;
      reinterpret_cast<T*>(to + i / kA16Cols * kMmaXRow)[i % kA16Cols] =
          token < p.m && k < p.k ? x[token * p.x_stride + k] : T(0.0f);
    }
  }
#if __CUDA_ARCH__ >= 800
  cp_async_commit();
#endif
}

template <int kStep, int kBits, typename T>
GALVANI_DEVICE void mma_one(const QmatmulArgs& p, const unsigned char* const (&unit)[kMmaRowTiles],
                            const A16Codes<kBits, T> (&codes)[kMmaRowTiles],
                            A16WeightScales<kBits, T, false> (&scales)[kMmaRowTiles], unsigned x_at,
                            float (&acc)[kMmaRowTiles][kMmaTokens / 8][4], int lane) {
  unsigned a[kMmaRowTiles][4];
#pragma unroll
  for (int r = 0; r < kMmaRowTiles; ++r) {
    if (a16_begins_subgroup(kStep, p.subgroups))
      scales[r].load(unit[r], a16_word_bytes(kBits), kStep * p.subgroups / 4, p.scale, lane);
    a16_weights<kStep>(a[r], codes[r], scales[r]);
  }
#pragma unroll
  for (int n = 0; n < kMmaTokens / 8; n += 2) {
    unsigned x[4];  // tokens n…n+7: k low, k high; the next eight likewise
    ldmatrix_x4(x, x_at + n * 8 * kMmaXRow + kStep * 32);
#pragma unroll
    for (int r = 0; r < kMmaRowTiles; ++r) {
      mma_m16n8k16<T>(acc[r][n], a[r], {x[0], x[1]});
      mma_m16n8k16<T>(acc[r][n + 1], a[r], {x[2], x[3]});
    }
  }
}

/// kBits: of affine codes, or which float codes (a16_float.h).
template <int kBits, typename T>
__global__ void __launch_bounds__(kMmaThreads) qmatmul_mma(const QmatmulArgs p) {
  __shared__ __align__(128) unsigned char x_tiles[2][kMmaXBytes];
  const int warp = threadIdx.x / kWarp, lane = lane_id();
  const int tile0 = (static_cast<int>(blockIdx.x) * kMmaWarps + warp) * kMmaRowTiles;
  const int token0 = static_cast<int>(blockIdx.y) * kMmaTokens;
  dependency_wait();
  dependency_release();
  const unsigned char* rows[kMmaRowTiles];
#pragma unroll
  for (int r = 0; r < kMmaRowTiles; ++r)
    rows[r] = p.w + static_cast<long long>(min(tile0 + r, p.row_tiles - 1)) * p.units * p.unit_bytes;
  // ldmatrix: matrix i of four = lanes 8i…: tokens 0…7 k low, k high, tokens 8…15 k low, k high.
  const unsigned x_lane = static_cast<unsigned>((lane / 16 * 8 + lane % 8) * kMmaXRow + lane / 8 % 2 * 16);

  float acc[kMmaRowTiles][kMmaTokens / 8][4] = {};
  A16Codes<kBits, T> codes[kMmaRowTiles], next[kMmaRowTiles];
  A16WeightScales<kBits, T, false> scales[kMmaRowTiles];
  mma_load_x<T>(p, x_tiles[0], token0, 0);
#pragma unroll
  for (int r = 0; r < kMmaRowTiles; ++r) next[r].load(rows[r], lane);
  for (int u = 0; u < p.units; ++u) {
    const unsigned char* unit[kMmaRowTiles];
#pragma unroll
    for (int r = 0; r < kMmaRowTiles; ++r) {
      unit[r] = rows[r] + static_cast<long long>(u) * p.unit_bytes;
      codes[r] = next[r];
      if (u + 1 < p.units) next[r].load(unit[r] + p.unit_bytes, lane);
    }
#if __CUDA_ARCH__ >= 800
    cp_async_wait<0>();
#endif
    __syncthreads();  // this x tile is complete, and nobody reads the other any more
    if (u + 1 < p.units) mma_load_x<T>(p, x_tiles[(u + 1) % 2], token0, u + 1);
    const unsigned x_at = shared_address(x_tiles[u % 2]) + x_lane;
    if constexpr (a16_is_float(kBits)) {
      mma_float_unit<kMmaXRow>(acc, codes, unit, x_at, kBits == kA16E2M1 && p.subgroups == 4, lane);
    } else {
      mma_one<0>(p, unit, codes, scales, x_at, acc, lane);
      mma_one<1>(p, unit, codes, scales, x_at, acc, lane);
      mma_one<2>(p, unit, codes, scales, x_at, acc, lane);
      mma_one<3>(p, unit, codes, scales, x_at, acc, lane);
    }
  }
#pragma unroll
  for (int r = 0; r < kMmaRowTiles; ++r)
#pragma unroll
    for (int n = 0; n < kMmaTokens / 8; ++n)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int m = token0 + n * 8 + lane % 4 * 2 + e % 2, row = (tile0 + r) * kA16Rows + lane / 4 + e / 2 * 8;
        float sum = acc[r][n][e];
        if constexpr (a16_is_float(kBits)) sum *= qmatmul_factor(p);
        if (m < p.m && row < p.n) qmatmul_store<T>(p, m, row, sum);
      }
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
