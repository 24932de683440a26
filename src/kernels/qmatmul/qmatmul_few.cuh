#pragma once
// Few tokens (up to 8·kTiles): weights are the A operand of m16n8k16, tokens its columns, so 1 and 8 tokens cost the
// same. Right for any part from 7.5; made for parts where the weights' bytes are the limit.
//
// A block (or the blocks of a cluster, each with its slice of K) owns an even, contiguous range of row tiles. The
// range's chunks (kFewChunk units along k) form one list, and each warp takes an even, contiguous part of the list with
// a ring of its own: no barrier between warps until the end. Where a warp's part begins or ends inside a row tile, its
// sum waits in shared memory and is added in warp order; then the blocks of a cluster add theirs in rank order. So the
// order of every sum is fixed by the shape and the grid, never by timing or by the other rows of x.
#include "kernels/common/cluster.cuh"
#include "kernels/common/copy.cuh"
#include "kernels/common/mma.cuh"
#include "kernels/qmatmul/a16_decode.cuh"
#include "kernels/qmatmul/qmatmul_few_float.cuh"
#include "kernels/qmatmul/qmatmul_store.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// How chunks reach a warp's ring.
enum class FewCopy { kBulk, kAsync, kPlain };

constexpr int kFewThreads = kFewWarps * kWarp;

struct FewRange {
  int tile0, tiles;        ///< row tiles of this block's cluster
  int k0, units;           ///< this block's slice of K, in units
  int chunks;              ///< of the slice of a row tile
  unsigned inverse;        ///< of chunks
  int rank, begin, end;    ///< this warp's part of the list
  int first, first_chunk;  ///< row tile and chunk where it begins

  GALVANI_DEVICE int warp_begin(int warp) const { return tiles * chunks * warp / kFewWarps; }
  GALVANI_DEVICE int tile_of(int at) const { return chunks == 1 ? at : static_cast<int>(__umulhi(at, inverse)); }
};

GALVANI_DEVICE FewRange few_range(const QmatmulFewArgs& a, int warp) {
  FewRange r;
  const int splits = 1 << a.split_log2, group = static_cast<int>(blockIdx.x) >> a.split_log2;
  r.rank = static_cast<int>(blockIdx.x) & (splits - 1);
  r.tile0 = group * a.tiles + min(group, a.tiles_rest);
  r.tiles = a.tiles + (group < a.tiles_rest ? 1 : 0);
  r.k0 = a.slice * r.rank;
  r.units = min(a.slice, a.p.units - r.k0);
  const bool last = r.rank == splits - 1;
  r.chunks = last ? a.chunks[1] : a.chunks[0];
  r.inverse = last ? a.chunks_inverse[1] : a.chunks_inverse[0];
  r.begin = r.warp_begin(warp);
  r.end = r.warp_begin(warp + 1);
  r.first = r.tile_of(r.begin);
  r.first_chunk = r.begin - r.first * r.chunks;
  return r;
}

/// The sum of 8 elements, in the order that every way to x's sums keeps.
template <typename T>
GALVANI_DEVICE float few_sum_8(const uint4& v) {
  const float2 e = unpack2<T>(v.x), f = unpack2<T>(v.y), g = unpack2<T>(v.z), h = unpack2<T>(v.w);
  return ((e.x + e.y) + (f.x + f.y)) + ((g.x + g.y) + (h.x + h.y));
}

/// x's slice to shared memory (16-bit elements, zeros up to `units` units), with the sums of its subgroups where kSums:
/// sums[subgroup][kStride tokens]. Plain loads, although 9.0 has better ones: a bulk copy would queue behind the
/// weights' in the same engine, and what a thread loads it can add up on the way. `between` runs when the first loads
/// are on their way. Ends with a block barrier.
template <typename T, bool kSums, int kStride, typename Between>
GALVANI_DEVICE void few_load_x(const QmatmulFewArgs& a, const FewRange& r, int units, unsigned char* smem,
                               const Between& between) {
  const QmatmulArgs& p = a.p;
  const int k0 = r.k0 * kA16Cols, padded = units * kA16Cols, real = min(r.units * kA16Cols, p.k - k0);
  const int pieces = padded / 8;
  const T* const x = static_cast<const T*>(p.x) + k0;
  float* const sums = reinterpret_cast<float*>(smem + a.sum_at);
  // Neighbouring lanes of a subgroup: 2, 4 or 8. Whole units, so lanes of a subgroup are always of one token.
  const int log2 = p.subgroups == 1 ? 3 : p.subgroups == 2 ? 2 : 1;
  const auto add = [&](float sum, int m, int piece, bool here) {
    sum += __shfl_xor_sync(kFullMask, sum, 1);
    if (log2 >= 2) sum += __shfl_xor_sync(kFullMask, sum, 2);
    if (log2 == 3) sum += __shfl_xor_sync(kFullMask, sum, 4);
    if (here && (piece & ((1 << log2) - 1)) == 0) sums[(piece >> log2) * kStride + m] = sum;
  };
  // All blocks want the same bytes at the same time, and one part of the L2 would have to serve them all: each begins
  // elsewhere. No division: a step is at most a few tokens.
  int m = static_cast<int>(blockIdx.x >> 3) & 7;
  while (m >= p.m) m -= p.m;
  int piece = static_cast<int>(threadIdx.x + (blockIdx.x & 7) * (pieces / 8 & ~7));
  const auto settle = [&] {
    while (piece >= pieces) piece -= pieces, m = m + 1 == p.m ? 0 : m + 1;
  };
  settle();
  const int total = p.m * pieces;
  if (p.x_aligned) {
    constexpr int kBatch = 8;
    for (int base = 0; base < total; base += kFewThreads * kBatch) {
      uint4 v[kBatch];
      int ms[kBatch], at[kBatch];
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        const bool here = base + u * kFewThreads + static_cast<int>(threadIdx.x) < total;
        v[u] = make_uint4(0, 0, 0, 0);
        ms[u] = m, at[u] = here ? piece : -1;
        if (here && piece * 8 < real) v[u] = *reinterpret_cast<const uint4*>(x + m * p.x_stride + piece * 8);
        piece += kFewThreads;
        settle();
      }
      if (base == 0) between();
#pragma unroll
      for (int u = 0; u < kBatch; ++u) {
        if (base + u * kFewThreads >= total) break;
        if (at[u] >= 0) *reinterpret_cast<uint4*>(smem + a.x_at + ms[u] * a.x_row + at[u] * 16) = v[u];
        if constexpr (kSums) add(few_sum_8<T>(v[u]), ms[u], at[u], at[u] >= 0);
      }
    }
    __syncthreads();
    return;
  }
  between();
  for (int token = 0; token < p.m; ++token)
    for (int i = static_cast<int>(threadIdx.x); i < padded; i += kFewThreads)
      reinterpret_cast<T*>(smem + a.x_at + token * a.x_row)[i] = i < real ? x[token * p.x_stride + i] : T(0.0f);
  __syncthreads();
  if constexpr (kSums) {
    for (int base = 0; base < total; base += kFewThreads) {
      const bool here = base + static_cast<int>(threadIdx.x) < total;
      float sum = 0.0f;
      if (here) sum = few_sum_8<T>(*reinterpret_cast<const uint4*>(smem + a.x_at + m * a.x_row + piece * 16));
      add(sum, m, piece, here);
      piece += kFewThreads;
      settle();
    }
    __syncthreads();
  }
}

/// kCount units in registers: out += scale · (codes · x) + bias · Σx for the tile's rows g, g + 8 and tokens 2t, 2t
/// + 1.
template <int kBits, typename T, int kTiles, int kSub, A16Scale kScale, int kCount>
struct FewBatch {
  static constexpr int kPairs = a16_word_bytes(kBits), kPairBytes = a16_pair_bytes(kScale);
  static constexpr int kUnitBytes = kPairs + kA16Rows * kSub * kPairBytes;

  A16Codes<kBits, T> codes[kCount];
  A16Scales scales[kCount][kSub];

  GALVANI_DEVICE void load(const unsigned char* at, int lane) {
#pragma unroll
    for (int u = 0; u < kCount; ++u) codes[u].load(at + u * kUnitBytes, lane);
#pragma unroll
    for (int u = 0; u < kCount; ++u)
#pragma unroll
      for (int s = 0; s < kSub; ++s)
        scales[u][s] =
            a16_scales<kScale>(at + u * kUnitBytes + kPairs + s * kA16Rows * kPairBytes + lane / 4 * 2 * kPairBytes);
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

  /// x_at: this lane's ldmatrix address of the first unit's first column, for each eight tokens; sums: of the first
  /// unit's first subgroup, at the lane's first token.
  GALVANI_DEVICE void multiply(float (&out)[kTiles][4], const unsigned (&x_at)[kTiles], const float* sums) const {
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
      for (int s = 0; s < kSub; ++s) {
        const A16Scales& sc = scales[u][s];
        // The codes carry an offset; it goes off again with the bias.
        const float bias0 = fmaf(-A16Codes<kBits, T>::offset(0), sc.scale[0], sc.bias[0]);
        const float bias1 = fmaf(-A16Codes<kBits, T>::offset(1), sc.scale[1], sc.bias[1]);
#pragma unroll
        for (int n = 0; n < kTiles; ++n) {
          const float2 sum = *reinterpret_cast<const float2*>(sums + (u * kSub + s) * 8 * kTiles + n * 8);
          const float(&c)[4] = acc[u][s][n];
          out[n][0] = fmaf(sc.scale[0], c[0], fmaf(bias0, sum.x, out[n][0]));
          out[n][1] = fmaf(sc.scale[0], c[1], fmaf(bias0, sum.y, out[n][1]));
          out[n][2] = fmaf(sc.scale[1], c[2], fmaf(bias1, sum.x, out[n][2]));
          out[n][3] = fmaf(sc.scale[1], c[3], fmaf(bias1, sum.y, out[n][3]));
        }
      }
  }
};

template <typename T, int kTiles, int kSub, A16Scale kScale, int kCount>
struct FewBatch<kA16E2M1, T, kTiles, kSub, kScale, kCount> : FewFloatBatch<kA16E2M1, T, kTiles, kSub, kCount> {};
template <typename T, int kTiles, int kSub, A16Scale kScale, int kCount>
struct FewBatch<kA16E4M3, T, kTiles, kSub, kScale, kCount> : FewFloatBatch<kA16E4M3, T, kTiles, kSub, kCount> {};

/// A warp's ring of chunks in shared memory.
/// kUniform: `warp` is known to be the warp's (warp_uniform), and all lanes come to fetch: the account is kept in
/// uniform registers, and one elected lane starts the copy.
template <FewCopy kCopy, int kChunk, bool kUniform = false>
struct FewRing {
  const unsigned char* from;  ///< of the next chunk to fetch
  unsigned slots, barriers;   ///< shared addresses of this warp's
  int left, in_tile;          ///< chunks to fetch: in all, in this row tile
  int chunks, last_bytes, chunk_bytes, stages;
  long long skip;  ///< from the end of the slice in one row tile to its start in the next
  int slot = 0, phase = 0;

  GALVANI_DEVICE FewRing(const QmatmulFewArgs& a, const FewRange& r, unsigned char* smem, int warp)
      : from(a.p.w +
             (static_cast<long long>(r.tile0 + r.first) * a.p.units + r.k0 + r.first_chunk * kChunk) * a.p.unit_bytes),
        slots(shared_address(smem) + warp * a.stages * kChunk * a.p.unit_bytes),
        barriers(shared_address(smem + a.barrier_at) + warp * a.stages * 8),
        left(r.end - r.begin),
        in_tile(r.chunks - r.first_chunk),
        chunks(r.chunks),
        last_bytes((r.units - (r.chunks - 1) * kChunk) * a.p.unit_bytes),
        chunk_bytes(kChunk * a.p.unit_bytes),
        stages(a.stages),
        skip(static_cast<long long>(a.p.units - r.units) * a.p.unit_bytes) {}

  /// Starts the next chunk's copy into slot `to`. The bulk copy is one lane's work: unless kUniform the others keep no
  /// account.
  GALVANI_DEVICE void fetch(int to, int lane) {
    if ((kCopy != FewCopy::kBulk || kUniform || lane == 0) && left > 0) {
      --left;
      const bool last = --in_tile == 0;
      const int bytes = last ? last_bytes : chunk_bytes;
      const unsigned shared = slots + to * chunk_bytes;
      if constexpr (kCopy == FewCopy::kBulk) {
        if (!kUniform || elect_one()) {
          barrier_arrive_expect(barriers + to * 8, static_cast<unsigned>(bytes));
          bulk_copy(shared, from, static_cast<unsigned>(bytes), barriers + to * 8);
        }
      } else {
        for (int i = lane * 16; i < bytes; i += kWarp * 16) {
          if constexpr (kCopy == FewCopy::kAsync)
            cp_async_16(shared + i, from + i);
          else
            store_shared_16(shared + i, *reinterpret_cast<const uint4*>(from + i));
        }
      }
      from += bytes;
      if (last) in_tile = chunks, from += skip;
    }
    if constexpr (kCopy == FewCopy::kAsync) cp_async_commit();
  }
  /// Until the oldest chunk is complete; gives its offset from the warp's first slot.
  GALVANI_DEVICE int wait() {
    if constexpr (kCopy == FewCopy::kBulk) barrier_wait(barriers + slot * 8, static_cast<unsigned>(phase));
    if constexpr (kCopy == FewCopy::kAsync) {
      // Groups are counted by fetches, one a step: all but the newest stages - 1 are done.
      if (stages == 2) cp_async_wait<1>();
      if (stages == 3) cp_async_wait<2>();
      if (stages == 4) cp_async_wait<3>();
    }
    if constexpr (kCopy != FewCopy::kBulk) __syncwarp();
    return slot * chunk_bytes;
  }
  /// The chunk has been read; its slot takes the next one.
  GALVANI_DEVICE void release(int lane) {
    __syncwarp();
    fetch(slot, lane);
    if (++slot == stages) slot = 0, phase ^= 1;
  }
};

/// Stores the sum of element = token · 16 + row of a tile.
template <typename T>
GALVANI_DEVICE void few_store(const QmatmulArgs& p, int tile, int element, float value) {
  const int row = tile * kA16Rows + element % kA16Rows;
  if (row < p.n) qmatmul_store<T>(p, element / kA16Rows, row, value);
}

/// Where a row tile's sums go: y when it is finished, else the place of the partial sums. kFactor: they are not yet
/// multiplied by the matrix's factor.
template <typename T, int kTiles, bool kFactor>
GALVANI_DEVICE void few_flush(const QmatmulFewArgs& a, const FewRange& r, unsigned char* smem, int tile, bool whole,
                              int warp, int lane, float (&out)[kTiles][4]) {
  const int g = lane / 4, t = lane % 4, elements = a.p.m * kA16Rows;
  float* to = reinterpret_cast<float*>(smem + a.red_at) + (2 * warp + (tile == r.first ? 0 : 1)) * elements;
  if (whole) to = reinterpret_cast<float*>(smem + a.part_at) + tile * elements;
#pragma unroll
  for (int n = 0; n < kTiles; ++n)
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int m = n * 8 + 2 * t + j % 2, element = m * kA16Rows + g + j / 2 * 8;
      if constexpr (kFactor) out[n][j] *= qmatmul_factor(a.p);
      if (m < a.p.m) {
        if (whole && a.split_log2 == 0)
          few_store<T>(a.p, r.tile0 + tile, element, out[n][j]);
        else
          to[element] = out[n][j];
      }
      out[n][j] = 0.0f;
    }
}

template <int kBits, typename T, int kTiles, int kSub, A16Scale kScale, FewCopy kCopy>
GALVANI_DEVICE void few_walk(const QmatmulFewArgs& a, const FewRange& r, FewRing<kCopy, kFewChunk, true>& ring,
                             unsigned char* smem, int warp, int lane) {
  constexpr int kChunk = kFewChunk, kBatch = kSub * kTiles <= 2 ? few_batch(a16_bits(kBits)) : 1;
  using Batch = FewBatch<kBits, T, kTiles, kSub, kScale, kBatch>;
  using One = FewBatch<kBits, T, kTiles, kSub, kScale, 1>;
  constexpr int kUnitBytes = Batch::kUnitBytes, kSumStep = kSub * 8 * kTiles;
  const QmatmulArgs& p = a.p;
  unsigned x_base[kTiles];
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
    const int token = n * 8 + lane % 8;  // absent tokens read any row: columns do not mix
    x_base[n] =
        shared_address(smem + a.x_at) + static_cast<unsigned>((token < p.m ? token : 0) * a.x_row + lane / 8 * 16);
  }
  const float* const sum_base = reinterpret_cast<const float*>(smem + a.sum_at) + 2 * (lane % 4);
  const unsigned char* const slots = smem + warp * a.stages * kChunk * kUnitBytes;
  const int last_units = r.units - (r.chunks - 1) * kChunk;

  int left = r.end - r.begin, chunk = r.first_chunk;
  float out[kTiles][4] = {};
  for (int tile = r.first; left > 0; ++tile, chunk = 0) {
    const int here = min(left, r.chunks - chunk);
    left -= here;
    unsigned x_at[kTiles];
#pragma unroll
    for (int n = 0; n < kTiles; ++n) x_at[n] = x_base[n] + static_cast<unsigned>(chunk * kChunk * kA16Cols * 2);
    const float* sums = sum_base + chunk * kChunk * kSumStep;
    const bool ends = chunk + here == r.chunks;
    const int full = here - (ends && last_units < kChunk ? 1 : 0);
    for (int i = 0; i < full; ++i) {
      const unsigned char* at = slots + ring.wait();
#pragma unroll
      for (int u = 0; u < kChunk; u += kBatch) {
        Batch batch;
        batch.load(at + u * kUnitBytes, lane);
        if (u + kBatch == kChunk) ring.release(lane);
        batch.multiply(out, x_at, sums);
#pragma unroll
        for (int n = 0; n < kTiles; ++n) x_at[n] += kBatch * kA16Cols * 2;
        sums += kBatch * kSumStep;
      }
    }
    if (full < here) {  // the slice's last chunk, shorter than the others
      const unsigned char* at = slots + ring.wait();
#pragma unroll 1
      for (int u = 0; u < last_units; ++u) {
        One one;
        one.load(at + u * kUnitBytes, lane);
        one.multiply(out, x_at, sums);
#pragma unroll
        for (int n = 0; n < kTiles; ++n) x_at[n] += kA16Cols * 2;
        sums += kSumStep;
      }
      ring.release(lane);
    }
    few_flush<T, kTiles, a16_is_float(kBits)>(a, r, smem, tile, ends && chunk == 0, warp, lane, out);
  }
}

/// Tiles that several warps share: their partial sums, in warp order.
template <typename T>
GALVANI_DEVICE void few_join_warps(const QmatmulFewArgs& a, const FewRange& r, unsigned char* smem) {
  const float* const red = reinterpret_cast<const float*>(smem + a.red_at);
  float* const part = reinterpret_cast<float*>(smem + a.part_at);
  const int elements = a.p.m * kA16Rows;
  // A warp for each warp: the tile that ends its part, if it began there and goes on in the next.
  const int warp = static_cast<int>(threadIdx.x) / kWarp, begin = r.begin, end = r.end;
  const int tile = r.tile_of(end), tile_begin = tile * r.chunks, tile_end = tile_begin + r.chunks;
  if (begin == end || tile_begin == end || tile_begin < begin) return;
  for (int element = lane_id(); element < elements; element += kWarp) {
    float sum = red[(2 * warp + (tile == r.first ? 0 : 1)) * elements + element];
    for (int next = warp + 1; next < kFewWarps; ++next) {
      const int from = r.warp_begin(next), to = r.warp_begin(next + 1);
      if (from >= tile_end) break;
      if (from < to) sum += red[2 * next * elements + element];
    }
    if (a.split_log2 == 0)
      few_store<T>(a.p, r.tile0 + tile, element, sum);
    else
      part[tile * elements + element] = sum;
  }
}

/// The blocks of a cluster add their slices' sums, in rank order.
template <typename T>
GALVANI_DEVICE void few_join_cluster(const QmatmulFewArgs& a, const FewRange& r, unsigned char* smem) {
  cluster_sync();
  const int splits = 1 << a.split_log2, elements = a.p.m * kA16Rows;
  const unsigned part = shared_address(smem + a.part_at);
  for (int i = static_cast<int>(threadIdx.x) * splits + r.rank; i < r.tiles * elements; i += kFewThreads * splits) {
    float sum = 0.0f;
    for (int from = 0; from < splits; ++from)
      sum += load_cluster_f32(part + static_cast<unsigned>(i) * 4u, static_cast<unsigned>(from));
    few_store<T>(a.p, r.tile0 + i / elements, i % elements, sum);
  }
  cluster_sync();  // nobody's shared memory goes away while another reads it
}

/// kBits: of affine codes, or which float codes (a16_float.h).
template <int kBits, typename T, int kTiles, FewCopy kCopy>
__global__ void __launch_bounds__(kFewThreads, 1) qmatmul_few(const QmatmulFewArgs a) {
  GALVANI_DYNAMIC_SHARED(unsigned char, smem, 128);
  constexpr bool kBulk = kCopy == FewCopy::kBulk;
  const int warp = warp_uniform(static_cast<int>(threadIdx.x) / kWarp), lane = lane_id();
  const FewRange r = few_range(a, warp);
  FewRing<kCopy, kFewChunk, true> ring(a, r, smem, warp);
  if constexpr (kBulk) {
    if (lane < a.stages) {
      barrier_init(ring.barriers + lane * 8, 1);
      fence_barrier_init();
    }
    __syncwarp();
  }
  // Weights wait for nobody, x for the kernel before.
  for (int s = 0; s < a.ahead; ++s) ring.fetch(s, lane);
  dependency_release();
  dependency_wait();
  few_load_x<T, !a16_is_float(kBits), 8 * kTiles>(a, r, r.units, smem, [&] {
    for (int s = a.ahead; s < a.stages; ++s) ring.fetch(s, lane);
  });
  if constexpr (a16_is_float(kBits)) {
    if (kBits == kA16E4M3 || a.p.subgroups == 2)
      few_walk<kBits, T, kTiles, 2, A16Scale::kE8M0>(a, r, ring, smem, warp, lane);
    else if constexpr (kBits == kA16E2M1)
      few_walk<kBits, T, kTiles, 4, A16Scale::kE5M3>(a, r, ring, smem, warp, lane);
  } else {
    // The type of the scales is a template argument: asked for in the loop, both 16-bit types were decoded there.
    const auto walk = [&]<A16Scale kScale>() {
      if (a.p.subgroups == 1)
        few_walk<kBits, T, kTiles, 1, kScale>(a, r, ring, smem, warp, lane);
      else if (a.p.subgroups == 2)
        few_walk<kBits, T, kTiles, 2, kScale>(a, r, ring, smem, warp, lane);
      else
        few_walk<kBits, T, kTiles, 4, kScale>(a, r, ring, smem, warp, lane);
    };
    if (a.p.scale == static_cast<int>(A16Scale::kBF16))
      walk.template operator()<A16Scale::kBF16>();
    else if (a.p.scale == static_cast<int>(A16Scale::kF16))
      walk.template operator()<A16Scale::kF16>();
    else
      walk.template operator()<A16Scale::kF32>();
  }
  __syncthreads();
  few_join_warps<T>(a, r, smem);
  if constexpr (kBulk) {
    if (a.split_log2 > 0) few_join_cluster<T>(a, r, smem);
  }
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
