#pragma once
// One token: the share-out, the rings and the joins of qmatmul_few.cuh, with the eight columns of m16n8k16 put to use.
//
// Column c of B is x where the product belongs to group c of the chunk (of the eight that share an accumulator), and
// zero elsewhere, so that the sums of eight groups of codes come out side by side: scale and bias are applied once per
// lane and group pair, not once per group by every lane, and no lane works for tokens that are not there. ldmatrix
// makes such a B for nothing: its rows are addresses, and seven of eight point at zeros.
#include "kernels/qmatmul/qmatmul_few.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// The zero rows, and zeros behind the chunks of a slice that is shorter than the others. Before the barrier that ends
/// few_load_x, which fills whole chunks.
template <typename T, int kChunk>
GALVANI_DEVICE void one_fill_zeros(const QmatmulFewArgs& a, const FewRange& r, unsigned char* smem) {
  const int filled = r.chunks * kChunk * kA16Cols;
  const int end = (a.zero_at - a.x_at + few_zero_bytes(kChunk)) / 2;
  T* const x = reinterpret_cast<T*>(smem + a.x_at);
  for (int i = filled + static_cast<int>(threadIdx.x); i < end; i += kFewThreads) x[i] = T(0.0f);
}

/// few_load_x for one token, in little code: what follows the wait is on the path of every step. Whole chunks; ends
/// with a block barrier.
template <typename T, int kChunk, typename Between>
GALVANI_DEVICE void one_load_x(const QmatmulFewArgs& a, const FewRange& r, unsigned char* smem,
                               const Between& between) {
  const int real = min(r.units * kA16Cols, a.p.k - r.k0 * kA16Cols), pieces = r.chunks * kChunk * (kA16Cols / 8);
  const T* const x = static_cast<const T*>(a.p.x) + r.k0 * kA16Cols;
  float* const sums = reinterpret_cast<float*>(smem + a.sum_at);
  const int log2 = a.p.subgroups == 1 ? 3 : a.p.subgroups == 2 ? 2 : 1;  // lanes of a subgroup: 8, 4 or 2
  // Blocks begin at different eighths, in whole subgroups; else one part of the L2 would have to serve them all.
  const int turn = static_cast<int>(blockIdx.x & 7) * (pieces / 8 & ~7), thread = static_cast<int>(threadIdx.x);
  const auto piece_of = [&](int at) { return at + turn < pieces ? at + turn : at + turn - pieces; };
  constexpr int kBatch = 4;
  for (int base = 0; base < pieces; base += kFewThreads * kBatch) {
    uint4 v[kBatch];
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const int at = base + u * kFewThreads + thread, piece = piece_of(at);
      v[u] = make_uint4(0, 0, 0, 0);
      if (at < pieces && piece * 8 < real) v[u] = *reinterpret_cast<const uint4*>(x + piece * 8);
    }
    if (base == 0) between();
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const int at = base + u * kFewThreads + thread, piece = piece_of(at);
      if (base + u * kFewThreads >= pieces) break;
      float sum = few_sum_8<T>(v[u]);
      sum += __shfl_xor_sync(kFullMask, sum, 1);
      if (log2 >= 2) sum += __shfl_xor_sync(kFullMask, sum, 2);
      if (log2 == 3) sum += __shfl_xor_sync(kFullMask, sum, 4);
      if (at >= pieces) continue;
      *reinterpret_cast<uint4*>(smem + a.x_at + piece * 16) = v[u];
      if ((piece & ((1 << log2) - 1)) == 0) sums[piece >> log2] = sum;
    }
  }
  __syncthreads();
}

/// A chunk: out += Σ scale · (codes · x) + bias · Σx over the lane's groups, for rows g and g + 8 of the tile.
template <int kBits, typename T, int kSub, A16Scale kScale, int kChunk>
struct OneChunk {
  static constexpr int kPairs = a16_word_bytes(kBits), kPairBytes = a16_pair_bytes(kScale);
  static constexpr int kUnitBytes = kPairs + kA16Rows * kSub * kPairBytes;
  static constexpr int kGroups = kChunk * kSub, kSets = kGroups > 8 ? kGroups / 8 : 1;
  static constexpr int kHalf = 4;  ///< units in registers at once
  /// Columns whose place is found by a multiplication instead of a comparison and a selection. At 2 bits the pipe of
  /// comparisons, shifts and logic is the busiest (two thirds of the instructions, at half rate), and an eighth
  /// register would be spilled.
  static constexpr int kMultiplied = kBits == 2 ? 7 : 0;

  /// What a lane needs to know of its place; the same for every chunk.
  struct Lane {
    unsigned x_row, zero_row;       ///< ldmatrix addresses of the first unit of the slice, and of the zeros
    int key;                        ///< the column whose B this lane addresses, less what its step adds
    unsigned own[kMultiplied + 1];  ///< key as ones and zeros
    int scale;                      ///< byte offset in the chunk of the lane's first group's pair
    int unit, pair;                 ///< that offset in parts: unit, and place in the unit
    bool idle;                      ///< fewer than eight groups: no group is this lane's
  };
  GALVANI_DEVICE static Lane place(const QmatmulFewArgs& a, const unsigned char* smem, int lane) {
    Lane l;
    l.x_row = shared_address(smem + a.x_at) + lane / 8 * 16;
    l.zero_row = shared_address(smem + a.zero_at) + (lane / 8 + 4) * 16;
    l.key = (lane - (kSub == 4 ? lane / 16 : 0)) & 7;
#pragma unroll
    for (int c = 0; c < kMultiplied; ++c) l.own[c] = not_hoisted(l.key == c ? 1u : 0u);
    const int first = 2 * (lane % 4);
    l.idle = first >= kGroups;
    const int group = l.idle ? first % kGroups : first;
    l.unit = group / kSub;
    l.pair = kPairs + (group % kSub * 8 + lane / 4) * 2 * kPairBytes;
    l.scale = l.unit * kUnitBytes + l.pair;
    return l;
  }

  /// The row of B that a lane addresses where `column` is the products': x, or zeros.
  GALVANI_DEVICE static unsigned row_of(const Lane& l, unsigned x_at, int column) {
    if (column < kMultiplied) return l.own[column] * (x_at - l.zero_row) + l.zero_row;
    return l.key == column ? x_at : l.zero_row;
  }

  float acc[kSets][2][4] = {};

  /// kLast: only `units` of the chunk are there; the others' codes are read from the last one and meet zeros.
  template <bool kLast, int kFirst>
  GALVANI_DEVICE void products(const unsigned char* at, unsigned x_at, const Lane& l, int units, int lane) {
    A16Codes<kBits, T> codes[kHalf];
#pragma unroll
    for (int u = 0; u < kHalf; ++u)
      codes[u].load(at + (kLast ? min(kFirst + u, units - 1) : kFirst + u) * kUnitBytes, lane);
    unsigned b[kHalf][8];
#pragma unroll
    for (int u = 0; u < kHalf; ++u)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int unit = kFirst + u, column = (unit * kSub + h * (kSub / 2)) % 8;
        unsigned four[4];
        ldmatrix_x4(four, row_of(l, x_at, column) + static_cast<unsigned>(unit * kA16Cols * 2 + h * 64));
#pragma unroll
        for (int i = 0; i < 4; ++i) b[u][4 * h + i] = four[i];
      }
    const auto step = [&]<int kStep>() {
#pragma unroll
      for (int u = 0; u < kHalf; ++u) {
        unsigned fragment[4];
        a16_fragment<kStep>(fragment, codes[u]);
        const unsigned pair[2] = {b[u][2 * kStep], b[u][2 * kStep + 1]};
        mma_m16n8k16<T>(acc[(kFirst + u) * kSub / 8][u % 2], fragment, pair);
      }
    };
    step.template operator()<0>();
    step.template operator()<1>();
    step.template operator()<2>();
    step.template operator()<3>();
  }

  /// sums: of the chunk's first group at the lane's; zeros for an idle lane.
  template <bool kLast>
  GALVANI_DEVICE void apply(const unsigned char* at, const float* sums, const Lane& l, int units, float (&out)[2]) {
#pragma unroll
    for (int e = 0; e < kSets; ++e) {
      const float2 sum = *reinterpret_cast<const float2*>(sums + 8 * e);
#pragma unroll
      for (int c = 0; c < 2; ++c) {
        const int units_on = e * 8 / kSub + (kSub == 1 ? c : 0), in = kSub == 1 ? 0 : c * kA16Rows * kPairBytes;
        const int offset =
            kLast ? min(l.unit + units_on, units - 1) * kUnitBytes + l.pair : l.scale + units_on * kUnitBytes;
        const A16Scales sc = a16_scales<kScale>(at + offset + in);
        const float x = c == 0 ? sum.x : sum.y;
        // The codes carry an offset; it goes off again with the bias.
        const float bias0 = fmaf(-A16Codes<kBits, T>::offset(0), sc.scale[0], sc.bias[0]);
        const float bias1 = fmaf(-A16Codes<kBits, T>::offset(1), sc.scale[1], sc.bias[1]);
        out[0] = fmaf(sc.scale[0], acc[e][0][c] + acc[e][1][c], fmaf(bias0, x, out[0]));
        out[1] = fmaf(sc.scale[1], acc[e][0][2 + c] + acc[e][1][2 + c], fmaf(bias1, x, out[1]));
      }
    }
  }
};

/// slots: this warp's ring, whose wait() gives a chunk's place in it.
template <int kBits, typename T, int kSub, A16Scale kScale, int kChunk, typename Ring>
GALVANI_DEVICE void one_walk(const QmatmulFewArgs& a, const FewRange& r, Ring& ring, const unsigned char* slots,
                             unsigned char* smem, int warp, int lane) {
  using Chunk = OneChunk<kBits, T, kSub, kScale, kChunk>;
  const typename Chunk::Lane l = Chunk::place(a, smem, lane);
  const float* const sum_base = reinterpret_cast<const float*>(smem + (l.idle ? a.zero_at : a.sum_at));
  const int sum_step = l.idle ? 0 : Chunk::kGroups;
  const int last_units = r.units - (r.chunks - 1) * kChunk;
  int left = r.end - r.begin, chunk = r.first_chunk;
  float out[2] = {};
  for (int tile = r.first; left > 0; ++tile, chunk = 0) {
    const int here = min(left, r.chunks - chunk);
    left -= here;
    unsigned x_at = l.x_row + static_cast<unsigned>(chunk * kChunk * kA16Cols * 2);
    const float* sums = sum_base + chunk * sum_step + (l.idle ? 0 : 2 * (lane % 4));
    const bool ends = chunk + here == r.chunks;
    const int full = here - (ends && last_units < kChunk ? 1 : 0);
    for (int i = 0; i < full; ++i) {
      const unsigned char* const at = slots + ring.wait();
      Chunk c;
      c.template products<false, 0>(at, x_at, l, kChunk, lane);
      if constexpr (kChunk == 8) c.template products<false, 4>(at, x_at, l, kChunk, lane);
      c.template apply<false>(at, sums, l, kChunk, out);
      ring.release(lane);
      x_at += kChunk * kA16Cols * 2;
      sums += sum_step;
    }
    if (full < here) {  // the slice's last chunk, shorter than the others
      const unsigned char* const at = slots + ring.wait();
      Chunk c;
      c.template products<true, 0>(at, x_at, l, last_units, lane);
      if constexpr (kChunk == 8) c.template products<true, 4>(at, x_at, l, last_units, lane);
      c.template apply<true>(at, sums, l, last_units, out);
      ring.release(lane);
    }
    // Over the lanes of a row, then where few_flush would put it.
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      out[h] += __shfl_xor_sync(kFullMask, out[h], 1);
      out[h] += __shfl_xor_sync(kFullMask, out[h], 2);
    }
    const bool whole = ends && chunk == 0;
    float* to = reinterpret_cast<float*>(smem + a.red_at) + (2 * warp + (tile == r.first ? 0 : 1)) * kA16Rows;
    if (whole) to = reinterpret_cast<float*>(smem + a.part_at) + tile * kA16Rows;
    if (lane % 4 < 2) {
      const int row = lane / 4 + lane % 4 * 8;
      const float value = lane % 4 == 0 ? out[0] : out[1];
      if (whole && a.split_log2 == 0)
        few_store<T>(a.p, r.tile0 + tile, row, value);
      else
        to[row] = value;
    }
    out[0] = out[1] = 0.0f;
  }
}

template <int kBits, typename T, int kChunk>
__global__ void __launch_bounds__(kFewThreads, 1) qmatmul_one(const QmatmulFewArgs a) {
  GALVANI_DYNAMIC_SHARED(unsigned char, smem, 128);
  const int warp = threadIdx.x / kWarp, lane = lane_id();
  const FewRange r = few_range(a, warp);
  FewRing<FewCopy::kBulk, kChunk> ring(a, r, smem, warp);
  if (lane < a.stages) {
    barrier_init(ring.barriers + lane * 8, 1);
    fence_barrier_init();
  }
  __syncwarp();
  // Weights wait for nobody, x for the kernel before.
  for (int s = 0; s < a.ahead; ++s) ring.fetch(s, lane);
  dependency_release();
  one_fill_zeros<T, kChunk>(a, r, smem);
  dependency_wait();
  const auto fetch_rest = [&] {
    for (int s = a.ahead; s < a.stages; ++s) ring.fetch(s, lane);
  };
  if (a.p.x_aligned)
    one_load_x<T, kChunk>(a, r, smem, fetch_rest);
  else
    few_load_x<T, true, 1>(a, r, r.chunks * kChunk, smem, fetch_rest);
  const unsigned char* const slots = smem + warp * a.stages * kChunk * a.p.unit_bytes;
  const auto walk = [&]<A16Scale kScale>() {
    if (a.p.subgroups == 1)
      one_walk<kBits, T, 1, kScale, kChunk>(a, r, ring, slots, smem, warp, lane);
    else if (a.p.subgroups == 2)
      one_walk<kBits, T, 2, kScale, kChunk>(a, r, ring, slots, smem, warp, lane);
    else
      one_walk<kBits, T, 4, kScale, kChunk>(a, r, ring, slots, smem, warp, lane);
  };
  if (a.p.scale == static_cast<int>(A16Scale::kBF16))
    walk.template operator()<A16Scale::kBF16>();
  else if (a.p.scale == static_cast<int>(A16Scale::kF16))
    walk.template operator()<A16Scale::kF16>();
  else
    walk.template operator()<A16Scale::kF32>();
  __syncthreads();
  few_join_warps<T>(a, r, smem);
  if (a.split_log2 > 0) few_join_cluster<T>(a, r, smem);
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
