#pragma once
// Up to 64 tokens on 9.0: x is streamed beside the weights, so that nothing of x has to fit or to be there first, and
// every row tile of a block is under way at once, so that x is read once a block.
//
// A block: sixteen multiplying warps and one that copies. Each multiplying warp has a row tile of its own; the ring of
// stages (a few units along k of all row tiles, and x's tiles of the same columns in 128-byte-swizzled rows) is the
// block's. A block with few row tiles lets its warpgroups share the units of a stage, and a cluster may share K; both
// add in fixed order, so that the order of every sum follows from the shape and the grid alone.
// Products are wgmma's, with weights rounded once to x's type.
#include "kernels/common/cluster.cuh"
#include "kernels/common/copy.cuh"
#include "kernels/common/wgmma.cuh"
#include "kernels/qmatmul/a16_dequant.cuh"
#include "kernels/qmatmul/qmatmul_store.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

struct StreamRange {
  int tile0, tiles;  ///< row tiles of this block's cluster
  int k0, units;     ///< this block's slice of K, in units
  int rank, count;   ///< of the cluster; stages of the slice
};
GALVANI_DEVICE StreamRange stream_range(const QmatmulStreamArgs& a) {
  StreamRange r;
  const int splits = 1 << a.split_log2, group = static_cast<int>(blockIdx.x) >> a.split_log2;
  r.rank = static_cast<int>(blockIdx.x) & (splits - 1);
  r.tile0 = group * a.tiles + min(group, a.tiles_rest);
  r.tiles = a.tiles + (group < a.tiles_rest ? 1 : 0);
  r.k0 = a.slice * r.rank;
  r.units = min(a.slice, a.p.units - r.k0);
  r.count = (r.units + a.step - 1) / a.step;
  return r;
}

/// The ring as one side of it sees it.
struct StreamRing {
  unsigned full, empty;  ///< barriers, 8 bytes a stage
  int stage = 0;
  unsigned phase = 0;
  GALVANI_DEVICE void next(int stages) {
    if (++stage == stages) stage = 0, phase ^= 1u;
  }
};

/// Lanes 0…15 bring a row tile each, lanes 16 and up x's tile of a unit each.
template <int kTokens>
struct StreamProducer {
  const QmatmulStreamArgs& a;
  const StreamRange& r;
  const TensorMap& x;
  unsigned smem;
  StreamRing ring;
  int lane;

  GALVANI_DEVICE int pass_tiles(int pass) const { return min(a.pass_tiles, r.tiles - pass * a.pass_tiles); }

  GALVANI_DEVICE void weights(int pass, int unit, int count, unsigned to, unsigned barrier) const {
    const int tile = pass * a.pass_tiles + lane;
    if (lane < pass_tiles(pass))
      bulk_copy(to + a.step * (kTokens * 128 + lane * a.p.unit_bytes),
                a.p.w + (static_cast<long long>(r.tile0 + tile) * a.p.units + r.k0 + unit) * a.p.unit_bytes,
                static_cast<unsigned>(count * a.p.unit_bytes), barrier);
  }
  GALVANI_DEVICE void tokens(int unit, int count, unsigned to, unsigned barrier) const {
    if (lane < 16) return;
    for (int u = lane - 16; u < count; u += 16)
      tensor_copy_2d(to + u * kTokens * 128, &x, (r.k0 + unit + u) * kA16Cols, 0, barrier);
  }
  GALVANI_DEVICE void expect(int pass, int count, unsigned barrier) const {
    if (lane == 0)
      barrier_arrive_expect(barrier,
                            static_cast<unsigned>(count * (kTokens * 128 + pass_tiles(pass) * a.p.unit_bytes)));
    __syncwarp();
  }

  GALVANI_DEVICE void run(int passes) {
    // Weights wait for nobody, x for the kernel before.
    const int ahead = min(a.ahead, r.count);
    for (int i = 0; i < ahead; ++i) {
      const int unit = i * a.step, count = min(a.step, r.units - unit);
      expect(0, count, ring.full + i * 8);
      weights(0, unit, count, smem + i * a.stage_bytes, ring.full + i * 8);
    }
    dependency_wait();
    dependency_release();
    for (int pass = 0; pass < passes; ++pass) {
      for (int i = 0; i < r.count; ++i) {
        const int unit = i * a.step, count = min(a.step, r.units - unit);
        const unsigned barrier = ring.full + ring.stage * 8, to = smem + ring.stage * a.stage_bytes;
        const bool begun = pass == 0 && i < ahead;
        if (!begun) {
          barrier_wait(ring.empty + ring.stage * 8, ring.phase ^ 1u);
          __syncwarp();
          expect(pass, count, barrier);
        }
        tokens(unit, count, to, barrier);
        if (!begun) weights(pass, unit, count, to, barrier);
        ring.next(a.stages);
      }
      if (a.split_log2 > 0) {  // the two barriers of stream_join
        __syncwarp();
        cluster_sync();
        cluster_sync();
      }
    }
  }
};

/// Which row tile and which units of a stage a multiplying warp has.
struct StreamRole {
  int tile, part;  ///< tile: of the pass, may be beyond its end
  bool working;    ///< false: its warpgroup has nothing to do in this launch
};
GALVANI_DEVICE StreamRole stream_role(const QmatmulStreamArgs& a, int warp) {
  const int group = __shfl_sync(kFullMask, warp / 4, 0), part = group / a.columns;
  return {(group - part * a.columns) * 4 + warp % 4, part, part < a.parts};
}

/// k16 steps 2·kPair and 2·kPair + 1 of a unit: fragments, then their products, while the pair before is under way.
/// kSub: subgroups of a unit, 0 = any number, read again at each step. Nothing may branch between two products that are
/// not waited for: ptxas would wait for each (C7513).
template <int kPair, int kBits, typename T, int kTokens, int kSub, A16Scale kScale, bool kNative>
GALVANI_DEVICE void stream_wgmma_pair(const unsigned char* unit, int subgroups, const A16Codes<kBits, T>& codes,
                                      A16WeightScales<kBits, T, kNative, kA16CanBare<kBits, T, kNative>>& scales,
                                      unsigned (&fragments)[2][2][4], float (&acc)[kTokens / 2], unsigned long long x,
                                      bool mine, int lane, unsigned& pending) {
  constexpr int kFirst = 2 * kPair, kSecond = kFirst + 1;
  const auto load_scales = [&]<int kStep>() {
    if constexpr (kStep * kSub % 4 == 0)
      scales.load(unit, a16_word_bytes(kBits), kStep * (kSub == 0 ? subgroups : kSub) / 4, static_cast<int>(kScale),
                  lane);
  };
  wgmma_wait<1>();
  if constexpr (kPair == 1) {  // all but the first pair's products are done, so the stage before has been read
    if (pending != 0 && lane == 0) barrier_arrive(pending);
    pending = 0;
  }
  // Where weights take many instructions, warps without a row tile leave them; elsewhere the branch costs more.
  if (kTokens == 64 || kA16CanBare<kBits, T, kNative> || mine) {
    load_scales.template operator()<kFirst>();
    a16_weights<kFirst>(fragments[kPair][0], codes, scales);
    load_scales.template operator()<kSecond>();
    a16_weights<kSecond>(fragments[kPair][1], codes, scales);
  }
  wgmma_fence();
  wgmma<T, kTokens>(acc, fragments[kPair][0], x + 2 * kFirst, 1);
  wgmma<T, kTokens>(acc, fragments[kPair][1], x + 2 * kSecond, 1);
  wgmma_commit();
}

/// A pass by wgmma. mine: the warp has a row tile of its own; one that has none multiplies what is there, for a
/// warpgroup multiplies as one.
/// kPends: a stage is free when the first products of the next are waited for, not at its own end. 64 tokens have three
/// stages and gain by it; the two of 16 and 32 tokens lose.
template <int kBits, typename T, int kTokens, int kSub, A16Scale kScale, bool kPends>
GALVANI_DEVICE void stream_wgmma_pass(const QmatmulStreamArgs& a, const StreamRange& r, const unsigned char* smem,
                                      StreamRing& ring, int tile, bool mine, int part, float (&acc)[kTokens / 2]) {
  constexpr bool kNative = kScale == (kIsBf16Type<T> ? A16Scale::kBF16 : A16Scale::kF16);
  constexpr int kXBytes = kTokens * 128;
  // What more registers than these have would spill.
  constexpr bool kKeeps = kTokens == 16 && kBits == 4 && kNative;
  constexpr int kAtOnce = kKeeps ? 4 : 2;
  const int unit_bytes = kSub == 0 ? a.p.unit_bytes : a16_word_bytes(kBits) + kA16Rows * kSub * a16_pair_bytes(kScale);
  const int lane = kKeeps ? static_cast<int>(kept(static_cast<unsigned>(lane_id()))) : lane_id();
  const unsigned base = kKeeps ? kept(shared_address(smem)) : shared_address(smem);
  unsigned fragments[2][2][4] = {};
  A16WeightScales<kBits, T, kNative, kA16CanBare<kBits, T, kNative>> scales;
#pragma unroll
  for (int i = 0; i < kTokens / 2; ++i) acc[i] = 0.0f;
  unsigned pending = 0;  // kPends: the barrier of a stage whose last products are under way
  for (int i = 0; i < r.count; ++i) {
    const int count = min(a.step, r.units - i * a.step);
    const unsigned char* const x = smem + ring.stage * a.stage_bytes;
    const unsigned char* const w = x + a.step * (kXBytes + tile * unit_bytes);
    barrier_wait(ring.full + ring.stage * 8, ring.phase);
#pragma unroll kAtOnce
    for (int u = part; u < count; u += a.parts) {
      const unsigned char* const unit = w + u * unit_bytes;
      A16Codes<kBits, T> codes;
      codes.load(unit, lane);
      const unsigned long long descriptor =
          wgmma_descriptor(base + static_cast<unsigned>(ring.stage * a.stage_bytes + u * kXBytes));
      stream_wgmma_pair<0, kBits, T, kTokens, kSub, kScale>(unit, a.p.subgroups, codes, scales, fragments, acc,
                                                            descriptor, mine, lane, pending);
      stream_wgmma_pair<1, kBits, T, kTokens, kSub, kScale>(unit, a.p.subgroups, codes, scales, fragments, acc,
                                                            descriptor, mine, lane, pending);
    }
    if constexpr (kPends) {
      // Nothing of this stage may be multiplied here, so what the stage before left is settled too.
      if (pending != 0) wgmma_wait<0>();
      if (pending != 0 && lane == 0) barrier_arrive(pending);
      pending = ring.empty + ring.stage * 8;
    } else {
      wgmma_wait<0>();
      if (lane == 0) barrier_arrive(ring.empty + ring.stage * 8);
    }
    ring.next(a.stages);
  }
  if constexpr (kPends) {
    wgmma_wait<0>();
    if (lane == 0) barrier_arrive(pending);
  }
  a16_finish_sums<kA16CanBare<kBits, T, kNative>>(acc);
}

/// A warp's sums of a row tile to y, or to `part` where others have more of them.
template <typename T, int kTokens>
GALVANI_DEVICE void stream_flush(const QmatmulArgs& p, float* part, int row_tile, const float (&acc)[kTokens / 2]) {
  const int lane = lane_id(), g = lane / 4, t = lane % 4;
#pragma unroll
  for (int j = 0; j < kTokens / 8; ++j)
#pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int m = 8 * j + 2 * t + e % 2, in = g + e / 2 * 8, row = row_tile * kA16Rows + in;
      if (m >= p.m) continue;
      if (part != nullptr)
        part[m * kA16Rows + in] = acc[4 * j + e];
      else if (row < p.n)
        qmatmul_store<T>(p, m, row, acc[4 * j + e]);
    }
}

/// Adds the parts of a pass in the order of the parts, then of the cluster's ranks. All multiplying warps; with a
/// cluster, the copying warp of every block meets the same cluster barriers.
template <typename T, int kTokens>
GALVANI_DEVICE void stream_join(const QmatmulStreamArgs& a, const StreamRange& r, float* part, int tile0, int tiles) {
  const QmatmulArgs& p = a.p;
  const int elements = p.m * kA16Rows, stride = kTokens * kA16Rows, part_stride = a.pass_tiles * stride;
  const int thread = static_cast<int>(threadIdx.x), splits = 1 << a.split_log2;
  named_barrier(1, kStreamWarps * kWarp);
  if (a.parts > 1) {
    for (int tile = 0; tile < tiles; ++tile)
      for (int i = thread; i < elements; i += kStreamWarps * kWarp) {
        float* const at = part + tile * stride + i;
        float sum = *at;
        for (int other = 1; other < a.parts; ++other) sum += at[other * part_stride];
        const int row = (tile0 + tile) * kA16Rows + i % kA16Rows;
        if (splits > 1)
          *at = sum;
        else if (row < p.n)
          qmatmul_store<T>(p, i / kA16Rows, row, sum);
      }
  }
  if (splits > 1) {
    cluster_sync();
    const unsigned from = shared_address(part);
    for (int tile = 0; tile < tiles; ++tile)
      for (int i = thread * splits + r.rank; i < elements; i += kStreamWarps * kWarp * splits) {
        float sum = 0.0f;
        for (int rank = 0; rank < splits; ++rank)
          sum += load_cluster_f32(from + static_cast<unsigned>(tile * stride + i) * 4u, static_cast<unsigned>(rank));
        const int row = (tile0 + tile) * kA16Rows + i % kA16Rows;
        if (row < p.n) qmatmul_store<T>(p, i / kA16Rows, row, sum);
      }
    cluster_sync();  // nobody's sums go away while another reads them
  } else {
    named_barrier(1, kStreamWarps * kWarp);
  }
}

/// x: tensor map of [m, k] with boxes of 64 × kTokens, 128-byte swizzle, zeros outside.
/// kGroups: 1 for groups of whole units alone, which spares 64 tokens the scales of every k16 step; 0 for any.
template <int kBits, typename T, int kTokens, A16Scale kScale, int kGroups = 0>
__global__ void __launch_bounds__(kStreamThreads, 1)
    qmatmul_stream(const QmatmulStreamArgs a, const __grid_constant__ TensorMap x) {
  GALVANI_DYNAMIC_SHARED(unsigned char, smem, 1024);
  __shared__ __align__(8) unsigned long long barriers[2][kStreamMostStages];
  const int warp = static_cast<int>(threadIdx.x) / kWarp;
  const StreamRange r = stream_range(a);
  StreamRing ring;
  ring.full = shared_address(barriers[0]), ring.empty = shared_address(barriers[1]);
  if (threadIdx.x == 0) {
    for (int s = 0; s < a.stages; ++s) {
      barrier_init(ring.full + s * 8, 1);
      barrier_init(ring.empty + s * 8, a.columns * a.parts * 4);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const int passes = (r.tiles + a.pass_tiles - 1) / a.pass_tiles;
  if (warp == kStreamWarps) {
    StreamProducer<kTokens> producer{a, r, x, shared_address(smem), ring, lane_id()};
    producer.run(passes);
    return;
  }
  dependency_wait();
  const StreamRole role = stream_role(a, warp);
  const bool join = a.parts > 1 || a.split_log2 > 0;
  float* const part = reinterpret_cast<float*>(smem + a.part_at);
  for (int pass = 0; pass < passes; ++pass) {
    const int tile0 = pass * a.pass_tiles, tiles = min(a.pass_tiles, r.tiles - tile0);
    if (role.working) {
      const bool mine = role.tile < tiles;
      const int tile = min(role.tile, tiles - 1);
      const auto walk = [&]<int kSub>() {
        float acc[kTokens / 2];
        stream_wgmma_pass<kBits, T, kTokens, kSub, kScale, kTokens == 64>(a, r, smem, ring, tile, mine, role.part, acc);
        if (mine)
          stream_flush<T, kTokens>(a.p,
                                   join ? part + (role.part * a.pass_tiles + role.tile) * kTokens * kA16Rows : nullptr,
                                   r.tile0 + tile0 + role.tile, acc);
      };
      // ptxas gives every loop with wgmma registers of its own: scales are a template argument, and 64 tokens have one
      // loop for every group, or it would run out of them and wait for each product (C7512).
      if constexpr (kTokens > 32) {
        walk.template operator()<kGroups>();
      } else {
        if (a.p.subgroups == 1)
          walk.template operator()<1>();
        else if (a.p.subgroups == 2)
          walk.template operator()<2>();
        else
          walk.template operator()<4>();
      }
    }
    if (join) stream_join<T, kTokens>(a, r, part, r.tile0 + tile0, tiles);
  }
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
