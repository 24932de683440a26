#pragma once
// Many tokens on 9.0a: weights are wgmma's A operand, dequantised in registers; x is its B operand, brought by the
// tensor copy engine into 128-byte-swizzled shared memory.
//
// A block: two warpgroups of 64 rows each (both read the same x), one that copies. Blocks walk the tiles: eight
// row blocks by all token blocks as one raster group, so that a group's weights and all of x stay in L2. A warpgroup
// has two products under way and dequantises the next fragment meanwhile.
#include "kernels/common/cluster.cuh"
#include "kernels/common/copy.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/qmatmul/a16_float.cuh"
#include "kernels/qmatmul/qmatmul_store.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

constexpr int kWgmmaRowTiles = kWgmmaRows / kA16Rows, kWgmmaRaster = 8, kWgmmaCopyWarps = 4;

struct WgmmaTile {
  int rows, tokens;  ///< block indices
};
GALVANI_DEVICE WgmmaTile wgmma_tile(const QmatmulWgmmaArgs& a, int i) {
  const int group = i / (kWgmmaRaster * a.token_blocks), in = i - group * kWgmmaRaster * a.token_blocks;
  const int height = min(kWgmmaRaster, a.row_blocks - group * kWgmmaRaster);
  return {group * kWgmmaRaster + in % height, in / height};
}

/// Where a row block begins along K. All blocks of one column of tiles read the same x; beginning together they would
/// ask one part of the L2 for the same lines at the same time. A function of the rows alone, so that the order of a sum
/// does not depend on the tokens.
GALVANI_DEVICE int wgmma_first_unit(int units, int row_block, int step) {
  const int groups = (units + step - 1) / step;
  return static_cast<int>(static_cast<unsigned>(row_block) * 5u % static_cast<unsigned>(groups)) * step;
}

/// A block's part of the work: which tiles, and which units of K of them.
struct WgmmaShare {
  int tile, step;    ///< first tile, and how far to the next
  int first, units;  ///< the slice of K
  int rank;          ///< in the cluster
};
GALVANI_DEVICE WgmmaShare wgmma_share(const QmatmulWgmmaArgs& a) {
  const int block = static_cast<int>(blockIdx.x);
  if (a.splits == 1) return {block, static_cast<int>(gridDim.x), 0, a.p.units, 0};
  const int tile = block / a.splits, rank = block - tile * a.splits, first = rank * a.slice;
  return {tile, static_cast<int>(gridDim.x) / a.splits, first, min(a.slice, a.p.units - first), rank};
}

/// The four copying warps: each brings two row tiles of weights, one a lane, and a share of x's tiles, so that nobody's
/// address arithmetic is on everybody's way.
template <int kTokens>
GALVANI_DEVICE void wgmma_produce(const QmatmulWgmmaArgs& a, const TensorMap& x, unsigned smem, unsigned full,
                                  unsigned empty) {
  constexpr int kStep = wgmma_step(kTokens), kXBytes = kTokens * 128, kWarps = kWgmmaCopyWarps;
  const QmatmulArgs& p = a.p;
  const int stage_bytes = wgmma_stage_bytes(kTokens, p.unit_bytes), lane = lane_id();
  const int warp = static_cast<int>(threadIdx.x) / kWarp - 8, row_tile = 2 * warp + lane;  // of lanes 0 and 1
  if (lane > 2) return;
  const WgmmaShare share = wgmma_share(a);
  int stage = 0;
  unsigned phase = 0;
  for (int i = share.tile; i < a.row_blocks * a.token_blocks; i += share.step) {
    const WgmmaTile tile = wgmma_tile(a, i);
    const unsigned char* const w =
        p.w +
        (static_cast<long long>(min(tile.rows * kWgmmaRowTiles + row_tile, p.row_tiles - 1)) * p.units + share.first) *
            p.unit_bytes;
    int unit = wgmma_first_unit(share.units, tile.rows, kStep);
    for (int done = 0; done < share.units;) {
      const int count = min(kStep, share.units - unit);
      const unsigned barrier = full + stage * 8, to = smem + stage * stage_bytes;
      barrier_wait(empty + stage * 8, phase ^ 1u);
      if (lane == 0) {
        const int tiles = (count - warp + kWarps - 1) / kWarps;  // of x, by this warp
        barrier_arrive_expect(barrier, static_cast<unsigned>(max(tiles, 0) * kXBytes + 2 * count * p.unit_bytes));
      }
      __syncwarp(7u);
      if (lane < 2) {
        bulk_copy(to + kStep * (kXBytes + row_tile * p.unit_bytes), w + static_cast<long long>(unit) * p.unit_bytes,
                  static_cast<unsigned>(count * p.unit_bytes), barrier);
      } else {
        for (int u = warp; u < count; u += kWarps)
          tensor_copy_2d(to + u * kXBytes, &x, (share.first + unit + u) * kA16Cols, tile.tokens * kTokens, barrier);
      }
      done += count;
      unit = unit + kStep < share.units ? unit + kStep : 0;
      if (++stage == a.stages) stage = 0, phase ^= 1u;
    }
  }
}

/// Which stage's products have been issued but not waited for; frees it when they are done. One thread speaks for its
/// warpgroup: wgmma.wait_group waits for the warpgroup's operation (PTX ISA), which begins when all four warps have
/// issued it, so their weights have been read by then.
struct WgmmaPending {
  unsigned empty = 0;  ///< its barrier, 0 = none
  GALVANI_DEVICE void release() {
    if (empty != 0 && threadIdx.x % 128 == 0) barrier_arrive(empty);
    empty = 0;
  }
};

/// k16 steps 2·kPair and 2·kPair + 1 of a unit: two fragments, then their products, while the two products before are
/// under way.
template <int kPair, int kBits, typename T, int kTokens, bool kNative>
GALVANI_DEVICE void wgmma_pair(const QmatmulWgmmaArgs& a, const unsigned char* unit, const A16Codes<kBits, T>& codes,
                               A16ScalesOf<kBits, T, kNative>& scales, unsigned (&fragments)[2][2][4],
                               float (&acc)[kTokens / 2], unsigned long long x, int accumulate, WgmmaPending& pending,
                               int lane) {
  constexpr int kFirst = 2 * kPair, kSecond = kFirst + 1;
  const auto begin = [&](int step) {
    // Where the compiler would branch around it, ptxas would wait for each product (C7513).
    if (kBits == kA16E2M1 || a16_begins_subgroup(step, a.p.subgroups))
      scales.load(unit, a16_word_bytes(a16_bits(kBits)), step * a.p.subgroups / 4,
                  a16_is_float(kBits) ? a.p.subgroups : a.p.scale, lane);
  };
  wgmma_wait<1>();
  if constexpr (kPair == 1) pending.release();  // all but the first pair's products are done
  begin(kFirst);
  a16_weights<kFirst>(fragments[kPair][0], codes, scales);
  begin(kSecond);
  a16_weights<kSecond>(fragments[kPair][1], codes, scales);
  wgmma_fence();
  wgmma<T, kTokens>(acc, fragments[kPair][0], x + 2 * kFirst, accumulate);
  wgmma<T, kTokens>(acc, fragments[kPair][1], x + 2 * kSecond, 1);
  wgmma_commit();
}

/// The slices of a cluster's tile, added in the order of the ranks; each block finishes its share of the tokens. The
/// ring has been read to its end by then and holds the sums, [token][rows] with rows padded so that no two lanes of a
/// store meet in a bank.
template <typename T, int kTokens>
GALVANI_DEVICE void wgmma_join(const QmatmulWgmmaArgs& a, const WgmmaShare& share, const WgmmaTile& tile,
                               unsigned char* smem, const float (&acc)[kTokens / 2]) {
  constexpr int kStride = kWgmmaRows + 4;
  float* const sums = reinterpret_cast<float*>(smem);
  const int lane = lane_id(), row = static_cast<int>(threadIdx.x) / kWarp * kA16Rows + lane / 4;
  named_barrier(1, 256);  // both warpgroups have read their last stage
#pragma unroll
  for (int j = 0; j < kTokens / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) sums[(8 * j + lane % 4 * 2 + e % 2) * kStride + row + e / 2 * 8] = acc[4 * j + e];
  cluster_sync();
  const unsigned from = shared_address(sums);
  const int tokens = min(kTokens, a.p.m - tile.tokens * kTokens);
  // Rows of a token are neighbouring threads; a token is one rank's, in turn.
#pragma unroll 4
  for (int m = static_cast<int>(threadIdx.x) / kWgmmaRows * a.splits + share.rank; m < tokens; m += 2 * a.splits) {
    const int in = static_cast<int>(threadIdx.x) % kWgmmaRows, n = tile.rows * kWgmmaRows + in;
    float sum = 0.0f;
    for (int rank = 0; rank < a.splits; ++rank)
      sum += load_cluster_f32(from + static_cast<unsigned>(m * kStride + in) * 4u, static_cast<unsigned>(rank));
    if (n < a.p.n) qmatmul_store<T>(a.p, tile.tokens * kTokens + m, n, sum);
  }
  cluster_sync();  // nobody's sums go away while another reads them
}

template <int kBits, typename T, int kTokens, bool kNative>
GALVANI_DEVICE void wgmma_consume(const QmatmulWgmmaArgs& a, unsigned char* smem, unsigned full, unsigned empty) {
  constexpr int kStep = wgmma_step(kTokens), kXBytes = kTokens * 128;
  const QmatmulArgs& p = a.p;
  const int stage_bytes = wgmma_stage_bytes(kTokens, p.unit_bytes), lane = lane_id();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;  // 0…7: its row tile of the block
  const WgmmaShare share = wgmma_share(a);
  int stage = 0;
  unsigned phase = 0;
  for (int i = share.tile; i < a.row_blocks * a.token_blocks; i += share.step) {
    const WgmmaTile tile = wgmma_tile(a, i);
    float acc[kTokens / 2];
    unsigned fragments[2][2][4];
    A16ScalesOf<kBits, T, kNative> scales;
    WgmmaPending pending;
    int accumulate = 0;
    int first = wgmma_first_unit(share.units, tile.rows, kStep);
    for (int done = 0; done < share.units; first = first + kStep < share.units ? first + kStep : 0) {
      const int count = min(kStep, share.units - first);
      done += count;
      const unsigned char* const x = smem + stage * stage_bytes;
      const unsigned char* const w = x + kStep * (kXBytes + warp * p.unit_bytes);
      barrier_wait(full + stage * 8, phase);
#pragma unroll 1
      for (int u = 0; u < count; ++u) {
        const unsigned char* const unit = w + u * p.unit_bytes;
        A16Codes<kBits, T> codes;
        codes.load(unit, lane);
        const unsigned long long descriptor = wgmma_descriptor(shared_address(x + u * kXBytes));
        wgmma_pair<0, kBits, T, kTokens, kNative>(a, unit, codes, scales, fragments, acc, descriptor, accumulate,
                                                  pending, lane);
        accumulate = 1;
        wgmma_pair<1, kBits, T, kTokens, kNative>(a, unit, codes, scales, fragments, acc, descriptor, 1, pending, lane);
      }
      pending.empty = empty + stage * 8;
      if (++stage == a.stages) stage = 0, phase ^= 1u;
    }
    wgmma_wait<0>();
    pending.release();
    if constexpr (a16_is_float(kBits)) {
#pragma unroll
      for (float& sum : acc) sum *= qmatmul_factor(p);
    }
    if (a.splits > 1) {
      wgmma_join<T, kTokens>(a, share, tile, smem, acc);
      return;  // such a launch has a tile a cluster
    }
    const int row = (tile.rows * kWgmmaRowTiles + warp) * kA16Rows + lane / 4, token = tile.tokens * kTokens;
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int m = token + 8 * j + lane % 4 * 2 + e % 2, n = row + e / 2 * 8;
        if (m < p.m && n < p.n) qmatmul_store<T>(p, m, n, acc[4 * j + e]);
      }
  }
}

/// x: tensor map of [m, k] with boxes of 64 × kTokens, 128-byte swizzle, zeros outside.
template <int kBits, typename T, int kTokens>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    qmatmul_wgmma(const QmatmulWgmmaArgs a, const __grid_constant__ TensorMap x) {
  GALVANI_DYNAMIC_SHARED(unsigned char, smem, 1024);
  __shared__ __align__(8) unsigned long long barriers[2][8];
  const unsigned full = shared_address(barriers[0]), empty = shared_address(barriers[1]);
  if (threadIdx.x == 0) {
    for (int s = 0; s < a.stages; ++s) {
      barrier_init(full + s * 8, kWgmmaCopyWarps);
      barrier_init(empty + s * 8, 2);
    }
    fence_barrier_init();
  }
  __syncthreads();
  if (threadIdx.x >= 256) {
    registers_down<40>();
    dependency_wait();
    dependency_release();
    wgmma_produce<kTokens>(a, x, shared_address(smem), full, empty);
  } else {
    registers_up<232>();
    dependency_wait();
    const bool native = a.p.scale == static_cast<int>(A16Codes<kBits, T>::kIsBf16 ? A16Scale::kBF16 : A16Scale::kF16);
    if (a16_is_float(kBits) || native)
      wgmma_consume<kBits, T, kTokens, true>(a, smem, full, empty);
    else
      wgmma_consume<kBits, T, kTokens, false>(a, smem, full, empty);
  }
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
