#pragma once
// Many tokens on 9.0a: weights are wgmma's A operand, dequantised in registers; x is its B operand, brought by the
// tensor copy engine into 128-byte-swizzled shared memory.
//
// A block: two warpgroups of 64 rows each (both read the same x), one that copies. Blocks walk the tiles: four token
// blocks by all row blocks as one raster group, so that a group's x stays in L2 while the weights pass. A warpgroup has
// two products under way and dequantises the next fragment meanwhile. Several blocks may share the K of a tile; their
// sums go side by side into f32, and qmatmul_parts.cuh adds them.
#include "kernels/common/copy.cuh"
#include "kernels/common/gate.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/qmatmul/a16_float.cuh"
#include "kernels/qmatmul/qmatmul_store.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

constexpr int kWgmmaRowTiles = kWgmmaRows / kA16Rows, kWgmmaRaster = 4, kWgmmaCopyWarps = 4;

struct WgmmaTile {
  int rows, tokens;  ///< block indices
};
GALVANI_DEVICE WgmmaTile wgmma_tile(const QmatmulWgmmaArgs& a, int i) {
  const int group = i / (kWgmmaRaster * a.row_blocks), in = i - group * kWgmmaRaster * a.row_blocks;
  const int width = min(kWgmmaRaster, a.token_blocks - group * kWgmmaRaster);
  return {in / width, group * kWgmmaRaster + in % width};
}

/// A block's part of the work: which tiles, and which units of K of them.
struct WgmmaShare {
  int tile, step;    ///< first tile, and how far to the next
  int first, units;  ///< the slice of K
  int rank;          ///< of that slice
};
GALVANI_DEVICE WgmmaShare wgmma_share(const QmatmulWgmmaArgs& a) {
  const int block = static_cast<int>(blockIdx.x);
  if (a.splits == 1) return {block, static_cast<int>(gridDim.x), 0, a.p.units, 0};
  const int tile = block / a.splits, rank = block - tile * a.splits, first = rank * a.slice;
  return {tile, static_cast<int>(gridDim.x) / a.splits, first, min(a.slice, a.p.units - first), rank};
}

/// The four copying warps: each brings two row tiles of weights, one a lane, and a share of x's tiles, so that
/// nobody's address arithmetic is on everybody's way.
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
    const int logical = min(tile.rows * kWgmmaRowTiles + row_tile, p.row_tiles - 1);
    const int stored = a.end == WgmmaEnd::kGate ? qmatmul_gate_tile(logical, p.row_tiles) : logical;
    const unsigned char* const w = p.w + (static_cast<long long>(stored) * p.units + share.first) * p.unit_bytes;
    for (int unit = 0; unit < share.units; unit += kStep) {
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

/// Lane t of four has four registers; lane i gets register i of each.
GALVANI_DEVICE void wgmma_turn_four(unsigned (&r)[4], int lane) {
#pragma unroll
  for (int step = 1; step <= 2; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & step) != 0) continue;
      const bool high = (lane & step) != 0;
      const unsigned got = __shfl_xor_sync(kFullMask, high ? r[i] : r[i + step], step);
      if (high)
        r[i] = got;
      else
        r[i + step] = got;
    }
}

/// The end of a gated tile. Warps 2i and 2i + 1 have gate and up of the same sixteen columns of y, lane for lane;
/// each finishes half of the tokens, so each gives the other half of its sums, sixteen tokens at a time through two
/// buffers in turn. Then a lane has eight columns of a token.
template <typename T, int kTokens>
GALVANI_DEVICE void wgmma_gate(const QmatmulWgmmaArgs& a, const WgmmaTile& tile, unsigned char* room,
                               const float (&acc)[kTokens / 2]) {
  constexpr int kHalf = kTokens / 4;  // sums of a lane
  const int lane = lane_id(), warp = static_cast<int>(threadIdx.x) / kWarp, t = lane % 4;
  const bool up = warp % 2 != 0;
  float4* const mine = reinterpret_cast<float4*>(room) + warp * 128;
  const float4* const others = reinterpret_cast<const float4*>(room) + (warp ^ 1) * 128;
  const int pair = tile.rows * (kWgmmaRowTiles / 2) + warp / 2;
  const int first = tile.tokens * kTokens + (up ? kTokens / 2 : 0) + 8 * (t / 2) + lane / 4;
  T* const y = static_cast<T*>(a.p.y) + pair * kA16Rows + 8 * (t % 2);
#pragma unroll
  for (int piece = 0; piece < kTokens / 32; ++piece) {
    const int buffer = piece % 2 * 64;
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      float v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = up ? acc[8 * piece + 4 * q + i] : acc[kHalf + 8 * piece + 4 * q + i];
      mine[buffer + q * 32 + lane] = make_float4(v[0], v[1], v[2], v[3]);
    }
    named_barrier(2 + warp / 2, 64);
    unsigned packed[4];
#pragma unroll
    for (int q = 0; q < 2; ++q) {
      const float4 got = others[buffer + q * 32 + lane];
      const float other[4] = {got.x, got.y, got.z, got.w};
      float out[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float own = up ? acc[kHalf + 8 * piece + 4 * q + i] : acc[8 * piece + 4 * q + i];
        out[i] = gated_mlp_value<true>(a.gate, up ? other[i] : own, up ? own : other[i], a.alpha, a.limit);
      }
      packed[2 * q] = transpose8x8(pack2<T>(out[0], out[1]));  // a token's columns 2t, 2t + 1 of the first eight
      packed[2 * q + 1] = transpose8x8(pack2<T>(out[2], out[3]));
    }
    wgmma_turn_four(packed, lane);
    const int m = first + 16 * piece;
    if (m < a.p.m && 2 * pair < a.p.row_tiles)
      *reinterpret_cast<uint4*>(y + m * a.p.y_stride) = make_uint4(packed[0], packed[1], packed[2], packed[3]);
  }
}

/// The end of a tile with f32 results: through shared memory, so that a warp stores 256 bytes of two tokens at once.
/// Straight from the sums it would be 32 bytes of four tokens, and adding to y ten times dearer (README.md).
template <int kTokens>
GALVANI_DEVICE void wgmma_vectors(const QmatmulWgmmaArgs& a, const WgmmaTile& tile, unsigned char* room,
                                  const float (&acc)[kTokens / 2]) {
  constexpr int kBuffer = kWgmmaEndTokens * kWgmmaEndStride;
  const int lane = lane_id(), group = static_cast<int>(threadIdx.x) / 128, thread = static_cast<int>(threadIdx.x) % 128;
  float* const buffers = reinterpret_cast<float*>(room) + group * 2 * kBuffer;
  float* const to = buffers + lane % 4 * 2 * kWgmmaEndStride + thread / kWarp * kA16Rows + lane / 4;
  const float* const from = buffers + thread / 16 * kWgmmaEndStride + thread % 16 * 4;
  const int row = tile.rows * kWgmmaRows + group * (kWgmmaRows / 2) + thread % 16 * 4;
  const int first = tile.tokens * kTokens + thread / 16;
  float* y = static_cast<float*>(a.p.y) + first * a.p.y_stride + row;
#pragma unroll
  for (int piece = 0; piece < kTokens / kWgmmaEndTokens; ++piece) {
    const int buffer = piece % 2 * kBuffer;
#pragma unroll
    for (int i = 0; i < 8; ++i) to[buffer + (i / 4 * 8 + i % 2) * kWgmmaEndStride + i % 4 / 2 * 8] = acc[8 * piece + i];
    named_barrier(2 + group, 128);  // nobody writes a buffer that a barrier ago was read: the other one is between
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float4 v = *reinterpret_cast<const float4*>(from + buffer + half * 8 * kWgmmaEndStride);
      if (first + piece * kWgmmaEndTokens + half * 8 < a.p.m && row < a.p.n) {
        if (a.p.add)
          add_vector(y, v);
        else
          *reinterpret_cast<float4*>(y) = v;
      }
      y += 8 * a.p.y_stride;
    }
  }
}

/// A tile's sums over the block's slice of K.
template <int kBits, typename T, int kTokens, bool kNative>
GALVANI_DEVICE void wgmma_sums(const QmatmulWgmmaArgs& a, const WgmmaShare& share, unsigned char* smem, unsigned full,
                               unsigned empty, int& stage, unsigned& phase, float (&acc)[kTokens / 2]) {
  constexpr int kStep = wgmma_step(kTokens), kXBytes = kTokens * 128;
  const QmatmulArgs& p = a.p;
  const int stage_bytes = wgmma_stage_bytes(kTokens, p.unit_bytes), lane = lane_id();
  const int warp = static_cast<int>(threadIdx.x) / kWarp;  // 0…7: its row tile of the block
  unsigned fragments[2][2][4];
  A16ScalesOf<kBits, T, kNative> scales;
  WgmmaPending pending;
  int accumulate = 0;
  for (int first = 0; first < share.units; first += kStep) {
    const int count = min(kStep, share.units - first);
    const unsigned char* const x = smem + stage * stage_bytes;
    const unsigned char* const w = x + kStep * (kXBytes + warp * p.unit_bytes);
    barrier_wait(full + stage * 8, phase);
#pragma unroll 1
    for (int u = 0; u < count; ++u) {
      const unsigned char* const unit = w + u * p.unit_bytes;
      A16Codes<kBits, T> codes;
      codes.load(unit, lane);
      const unsigned long long descriptor = wgmma_descriptor(shared_address(x + u * kXBytes));
      wgmma_pair<0, kBits, T, kTokens, kNative>(a, unit, codes, scales, fragments, acc, descriptor, accumulate, pending,
                                                lane);
      accumulate = 1;
      wgmma_pair<1, kBits, T, kTokens, kNative>(a, unit, codes, scales, fragments, acc, descriptor, 1, pending, lane);
    }
    pending.empty = empty + stage * 8;
    if (++stage == a.stages) stage = 0, phase ^= 1u;
  }
  wgmma_wait<0>();
  pending.release();
}

template <int kBits, typename T, int kTokens>
GALVANI_DEVICE void wgmma_consume(const QmatmulWgmmaArgs& a, unsigned char* smem, unsigned full, unsigned empty) {
  const QmatmulArgs& p = a.p;
  const int warp = static_cast<int>(threadIdx.x) / kWarp, lane = lane_id();
  const bool native = p.scale == static_cast<int>(A16Codes<kBits, T>::kIsBf16 ? A16Scale::kBF16 : A16Scale::kF16);
  const WgmmaShare share = wgmma_share(a);
  int stage = 0;
  unsigned phase = 0;
  for (int i = share.tile; i < a.row_blocks * a.token_blocks; i += share.step) {
    const WgmmaTile tile = wgmma_tile(a, i);
    float acc[kTokens / 2];
    if (a16_is_float(kBits) || native)
      wgmma_sums<kBits, T, kTokens, true>(a, share, smem, full, empty, stage, phase, acc);
    else
      wgmma_sums<kBits, T, kTokens, false>(a, share, smem, full, empty, stage, phase, acc);
    if constexpr (a16_is_float(kBits)) {
#pragma unroll
      for (float& sum : acc) sum *= qmatmul_factor(p);
    }
    if (a.end == WgmmaEnd::kGate) {
      wgmma_gate<T, kTokens>(a, tile, smem + a.end_at, acc);
      continue;
    }
    if (a.end == WgmmaEnd::kVectors) {
      wgmma_vectors<kTokens>(a, tile, smem + a.end_at, acc);
      continue;
    }
    const int row = (tile.rows * kWgmmaRowTiles + warp) * kA16Rows + lane / 4, token = tile.tokens * kTokens;
#pragma unroll
    for (int j = 0; j < kTokens / 8; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int m = token + 8 * j + lane % 4 * 2 + e % 2, n = row + e / 2 * 8;
        if (m < p.m && n < p.n) qmatmul_store<T>(p, share.rank * p.m + m, n, acc[4 * j + e]);
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
    wgmma_consume<kBits, T, kTokens>(a, smem, full, empty);
  }
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
