#pragma once
// A product of a decode step: x as digits, the walk over the rings, the ends.
#include "kernels/common/gate.cuh"
#include "kernels/common/grid.cuh"
#include "kernels/common/store.cuh"
#include "kernels/qmatmul/qmatmul_few.cuh"
#include "kernels/step/step_keys.cuh"
#include "kernels/step/step_relay.cuh"
#include "kernels/step/step_walk.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// This block's row tiles: `count` from `first` on, and where gate and up are paired as many from `pair` further on.
struct StepTiles {
  int first, count;
  GALVANI_DEVICE StepTiles(const StepProduct& p) {
    const int block = static_cast<int>(blockIdx.x);
    first = block * p.tiles + min(block, p.tiles_rest);
    count = p.tiles + (block < p.tiles_rest ? 1 : 0);
  }
};

GALVANI_DEVICE StepRun step_run(const StepProduct& p) {
  const StepTiles tiles(p);
  const long long tile_bytes = static_cast<long long>(p.units) * p.unit_bytes;
  StepRun run;
  run.from = p.w + tiles.first * tile_bytes;
  run.half = tiles.count * p.chunks;
  run.chunks = p.pair > 0 ? 2 * run.half : run.half;
  run.jump = p.pair > 0 ? (p.pair - tiles.count) * tile_bytes : 0;
  run.chunk_bytes = kFewChunk * p.unit_bytes;
  run.pad = 0;
  return run;
}

/// What a warp works on: a part of the list of its block's chunks. Row tiles count from the block's first.
GALVANI_DEVICE FewRange step_range(const StepProduct& p, int warp) {
  FewRange r;
  r.tile0 = 0, r.tiles = StepTiles(p).count * (p.pair > 0 ? 2 : 1);
  r.k0 = 0, r.units = p.units, r.chunks = p.chunks, r.inverse = p.chunks_inverse, r.rank = 0;
  r.begin = r.warp_begin(warp);
  r.end = r.warp_begin(warp + 1);
  r.first = r.tile_of(r.begin);
  r.first_chunk = r.begin - r.first * r.chunks;
  return r;
}

/// What a warp's ring keeps between phases, in shared memory: registers of the products are many enough.
struct alignas(16) StepRingState {
  const unsigned char* from;  ///< the next chunk to ask for
  int left, chunk_bytes;      ///< chunks of this phase to ask for, and their size
  int next;                   ///< phase after it
  int slot, parity;           ///< the slot to read next
  int pad;
};
static_assert(sizeof(StepRingState) == kStepRingBytes);

/// A warp's ring of chunks in shared memory, filled through all products of the step as slots become free.
struct StepRing {
  const StepArgs& s;
  unsigned char* smem;
  int warp;
  StepRingState state;
  int first;               ///< offset of slot 0
  unsigned first_barrier;  ///< its barrier
  GALVANI_DEVICE StepRingState* place() const { return reinterpret_cast<StepRingState*>(smem + s.ring_at) + warp; }
  /// Goes on where the last one was saved, or begins.
  GALVANI_DEVICE StepRing(const StepArgs& s, unsigned char* smem, int warp, bool begins)
      : s(s), smem(smem), warp(warp), state{} {
    if (!begins) state = *place();
    first = warp * s.stages * s.slot_bytes;
    first_barrier = shared_address(smem + s.barrier_at) + warp * s.stages * 8;
  }
  GALVANI_DEVICE int offset(int slot) const { return first + slot * s.slot_bytes; }
  GALVANI_DEVICE unsigned barrier(int slot) const { return first_barrier + static_cast<unsigned>(slot) * 8; }
  GALVANI_DEVICE void save() {
    __syncwarp();
    *place() = state;
  }
  /// Asks for the next chunk. All lanes keep account: a lane of its own would have its registers copied for each.
  GALVANI_DEVICE void fetch(int slot) {
    while (state.left == 0) {
      if (state.next == s.count) return;
      const StepRun run = reinterpret_cast<const StepRun*>(smem + s.run_at)[state.next++];
      const int begin = run.chunks * warp / kStepWarps;
      state.left = run.chunks * (warp + 1) / kStepWarps - begin;
      state.chunk_bytes = run.chunk_bytes;
      state.from = run.from + static_cast<long long>(begin) * run.chunk_bytes + (begin >= run.half ? run.jump : 0);
    }
    --state.left;
    if (elect_one()) {
      barrier_arrive_expect(barrier(slot), static_cast<unsigned>(state.chunk_bytes));
      bulk_copy(shared_address(smem) + offset(slot), state.from, static_cast<unsigned>(state.chunk_bytes),
                barrier(slot));
    }
    state.from += state.chunk_bytes;
  }
  GALVANI_DEVICE int wait() {
    barrier_wait(barrier(state.slot), static_cast<unsigned>(state.parity));
    return offset(state.slot);
  }
  GALVANI_DEVICE void release() {
    __syncwarp();
    fetch(state.slot);
    const bool wraps = ++state.slot == s.stages;
    state.slot = wraps ? 0 : state.slot;
    state.parity ^= wraps ? 1 : 0;
  }
};

/// Pieces of eight elements of x: which a thread has. All blocks want the same bytes at the same time, and one part of
/// the L2 would have to serve them all: each begins elsewhere.
struct StepPieces {
  static constexpr int kFirst = 4;
  int count, turn;
  int first[kFirst];  ///< of the thread's first turns, known before the grid has been waited for; -1: none
  GALVANI_DEVICE StepPieces(const StepProduct& p)
      : count(p.k / 8), turn(static_cast<int>(blockIdx.x & 7) * (p.k / 64 & ~7)) {
#pragma unroll
    for (int u = 0; u < kFirst; ++u) first[u] = static_cast<int>(kept(static_cast<unsigned>((*this)(u))));
  }
  GALVANI_DEVICE int operator()(int u) const {
    const int at = static_cast<int>(threadIdx.x) + u * kStepThreads;
    if (at >= count) return -1;
    return at + turn < count ? at + turn : at + turn - count;
  }
};

/// The three digits of four elements, a byte each, signed: high, middle, low. inverse: 1 / u.
GALVANI_DEVICE void step_digits(float a, float b, float c, float d, float inverse, unsigned (&digits)[3]) {
  // x / u as an integer in the low bits, over 2^22 + 2^15 + 2^7: so no digit borrows from the next.
  constexpr float kMagic = 12582912.0f + 32896.0f;
  const unsigned i = __float_as_uint(fmaf(a, inverse, kMagic)), j = __float_as_uint(fmaf(b, inverse, kMagic)),
                 k = __float_as_uint(fmaf(c, inverse, kMagic)), l = __float_as_uint(fmaf(d, inverse, kMagic));
  const unsigned ij = __byte_perm(i, j, 0x5140), kl = __byte_perm(k, l, 0x5140);
  const unsigned high = __byte_perm(__byte_perm(i, j, 0x0062), __byte_perm(k, l, 0x0062), 0x5410);
  digits[0] = (high + 0x40404040u) ^ 0x80808080u;
  digits[1] = __byte_perm(ij, kl, 0x7632) ^ 0x80808080u;
  digits[2] = __byte_perm(ij, kl, 0x5410) ^ 0x80808080u;
}

/// A piece of x, as digits, and the sum and unit of its subgroup. v: elements 4i…4i+3 of its sixteen, i = piece % 2,
/// and those eight further on. A thread of no piece has zeros.
GALVANI_DEVICE void step_put_x(const StepArgs& s, unsigned char* smem, const float (&v)[8], int piece, int log2) {
  float sum = ((v[0] + v[1]) + (v[2] + v[3])) + ((v[4] + v[5]) + (v[6] + v[7]));
  float most = fmaxf(fmaxf(fmaxf(fabsf(v[0]), fabsf(v[1])), fmaxf(fabsf(v[2]), fabsf(v[3]))),
                     fmaxf(fmaxf(fabsf(v[4]), fabsf(v[5])), fmaxf(fabsf(v[6]), fabsf(v[7]))));
  const auto join = [&](int lanes) {
    sum += __shfl_xor_sync(kFullMask, sum, lanes);
    most = fmaxf(most, __shfl_xor_sync(kFullMask, most, lanes));
  };
  join(1);
  if (log2 >= 2) join(2);
  if (log2 == 3) join(4);
  if (piece < 0) return;
  // u = 2^(E - 20), E being the largest's exponent: below 2^21 of it. Infinity and NaN are in the sum.
  const unsigned exponent = max(__float_as_uint(most) & 0x7f800000u, 25u << 23);
  const float inverse = __uint_as_float((274u << 23) - exponent);
  unsigned first[3], second[3];
  step_digits(v[0], v[4], v[1], v[5], inverse, first);
  step_digits(v[2], v[6], v[3], v[7], inverse, second);
  unsigned char* const to = smem + s.x_at + piece / 8 * kStepUnitX + piece % 2 * 32 + piece % 8 / 2 * 4;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    *reinterpret_cast<unsigned*>(to + i * kStepPlane) = first[i];
    *reinterpret_cast<unsigned*>(to + i * kStepPlane + 16) = second[i];
  }
  if ((piece & ((1 << log2) - 1)) == 0)
    reinterpret_cast<StepSum*>(smem + s.sum_at)[piece >> log2] = {sum, __uint_as_float(exponent - (23u << 23))};
}

/// Lanes of a subgroup, eight elements each: 8, 4 or 2, as a power of two.
GALVANI_DEVICE int step_subgroup_log2(const StepProduct& p) { return p.subgroups == 1 ? 3 : p.subgroups == 2 ? 2 : 1; }

/// Where the first four of a piece's elements are in the row; the others are eight further on.
GALVANI_DEVICE int step_piece_at(int piece) { return piece / 2 * 16 + piece % 2 * 4; }

/// x in shared memory. Ends with a barrier.
template <typename T>
GALVANI_DEVICE void step_load_x(const StepArgs& s, const StepProduct& p, const StepPieces& piece, unsigned char* smem) {
  const int log2 = step_subgroup_log2(p);
  const T* const x = static_cast<const T*>(p.x);
  const uint4* const relay = static_cast<const uint4*>(p.from);
  for (int base = 0; base * kStepThreads < piece.count; base += StepPieces::kFirst) {
    uint4 v[StepPieces::kFirst];
    int at[StepPieces::kFirst];
#pragma unroll
    for (int u = 0; u < StepPieces::kFirst; ++u) {
      at[u] = base == 0 ? piece.first[u] : piece(base + u);
      v[u] = make_uint4(0, 0, 0, 0);
      if (at[u] < 0) continue;
      if (relay != nullptr) {
        v[u] = load_relaxed(relay + at[u]);
      } else {
        const uint2* const from = reinterpret_cast<const uint2*>(x + step_piece_at(at[u]));
        const uint2 low = __ldcg(from), high = __ldcg(from + 2);
        v[u] = make_uint4(low.x, low.y, high.x, high.y);
      }
    }
#pragma unroll
    for (int u = 0; u < StepPieces::kFirst; ++u) {
      if ((base + u) * kStepThreads >= piece.count) break;
      if (relay != nullptr) step_await<T>(v[u], relay + max(at[u], 0));
      const float2 a = unpack2<T>(v[u].x), b = unpack2<T>(v[u].y), c = unpack2<T>(v[u].z), d = unpack2<T>(v[u].w);
      step_put_x(s, smem, {a.x, a.y, b.x, b.y, c.x, c.y, d.x, d.y}, at[u], log2);
    }
  }
  __syncthreads();
}

/// 1 / sqrt(mean of squares + eps) of the row whose squares the warps have left. All lanes.
GALVANI_DEVICE float step_norm_inverse(const StepArgs& s, const StepProduct& p, const unsigned char* smem, int lane) {
  const float* const squares = reinterpret_cast<const float*>(smem + s.square_at);
  const float total = warp_sum(lane < kStepWarps ? squares[lane] : 0.0f);
  return 1.0f / sqrtf(total / static_cast<float>(p.k) + p.eps);
}

/// A norm's weights for a thread's pieces of x, asked for while the grid waits.
struct StepNormWeights {
  float4 w[4];
  GALVANI_DEVICE void load(const StepProduct& p, const StepPieces& piece) {
#pragma unroll
    for (int u = 0; u < 2; ++u) {
      w[2 * u] = w[2 * u + 1] = make_float4(1, 1, 1, 1);
      if (p.norm_w == nullptr || piece.first[u] < 0) continue;
      const float4* const from = reinterpret_cast<const float4*>(p.norm_w + step_piece_at(piece.first[u]));
      w[2 * u] = load_early(from), w[2 * u + 1] = load_early(from + 2);
    }
  }
};

/// The same of x · w of norm(x), x being f32, rounded to T; its last factor is left to the finished sums, which
/// step_norm_inverse has it for: so nothing waits for the sum of squares. f16 could overflow without it and has it
/// here.
template <typename T>
GALVANI_DEVICE void step_load_normed(const StepArgs& s, const StepProduct& p, const StepPieces& piece,
                                     const StepNormWeights& weights, unsigned char* smem, int warp, int lane) {
  const int log2 = step_subgroup_log2(p);
  const float* const x = static_cast<const float*>(p.x);
  float4 v[4];
#pragma unroll
  for (int u = 0; u < 2; ++u) {
    v[2 * u] = v[2 * u + 1] = make_float4(0, 0, 0, 0);
    if (piece.first[u] < 0) continue;
    const float4* const from = reinterpret_cast<const float4*>(x + step_piece_at(piece.first[u]));
    v[2 * u] = __ldcg(from), v[2 * u + 1] = __ldcg(from + 2);
  }
  // Not while the grid waits: an addition would wait for the loads, and the wait for the addition.
  const float one = p.plus_one && p.norm_w != nullptr ? 1.0f : 0.0f;
  float squares = 0;
#pragma unroll
  for (int i = 0; i < 4; ++i) squares += (v[i].x * v[i].x + v[i].y * v[i].y) + (v[i].z * v[i].z + v[i].w * v[i].w);
  squares = warp_sum(squares);
  if (lane == 0) reinterpret_cast<float*>(smem + s.square_at)[warp] = squares;
  float inverse = 1;
  if constexpr (!kIsBf16Type<T>) {
    __syncthreads();
    inverse = step_norm_inverse(s, p, smem, lane);
  }
#pragma unroll
  for (int u = 0; u < 2; ++u) {
    if (u * kStepThreads >= piece.count) break;
    const float4 a = v[2 * u], b = v[2 * u + 1], wa = weights.w[2 * u], wb = weights.w[2 * u + 1];
    const float2 y0 = unpack2<T>(pack2<T>(a.x * inverse * (wa.x + one), a.y * inverse * (wa.y + one))),
                 y1 = unpack2<T>(pack2<T>(a.z * inverse * (wa.z + one), a.w * inverse * (wa.w + one))),
                 y2 = unpack2<T>(pack2<T>(b.x * inverse * (wb.x + one), b.y * inverse * (wb.y + one))),
                 y3 = unpack2<T>(pack2<T>(b.z * inverse * (wb.z + one), b.w * inverse * (wb.w + one)));
    step_put_x(s, smem, {y0.x, y0.y, y1.x, y1.y, y2.x, y2.y, y3.x, y3.y}, piece.first[u], log2);
  }
  __syncthreads();
}

/// The sums of a tile's rows, in lane row and lane row + 16: its own warp's where one had all of it, else the parts of
/// its warps, even ones and odd ones in order. total: chunks of the block. All lanes.
GALVANI_DEVICE float step_join(const StepArgs& s, const unsigned char* smem, int tile, int chunks, int total,
                               int lane) {
  const int begin = tile * chunks, end = begin + chunks, row = lane % kA16Rows, half = lane / kA16Rows;
  const int from = total * lane / kStepWarps, to = total * (lane + 1) / kStepWarps;  // of warp `lane`
  const unsigned here = __ballot_sync(kFullMask, lane < kStepWarps && from < to && from < end && to > begin);
  const unsigned late = __ballot_sync(kFullMask, from >= begin);
  const int first = __ffs(static_cast<int>(here)) - 1, last = 31 - __clz(static_cast<int>(here));
  if (first == last) return reinterpret_cast<const float*>(smem + s.part_at)[tile * kA16Rows + row];
  // A warp's first tile is in its first place; only the tile's first warp may have come from another. Warps between may
  // have nothing.
  const float* const red = reinterpret_cast<const float*>(smem + s.red_at) + row;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kStepWarps / 2; ++i) {
    const int w = first + half + 2 * i;
    if (w <= last && (here >> w & 1) != 0)
      sum += red[(2 * w + (w == first && (late >> w & 1) == 0 ? 1 : 0)) * kA16Rows];
  }
  return sum + __shfl_xor_sync(kFullMask, sum, kA16Rows);
}

/// Sums of squares that a `from` brings with it, in the warps' places of a normed row's.
GALVANI_DEVICE void step_load_squares(const StepArgs& s, const StepProduct& p, unsigned char* smem, int warp,
                                      int lane) {
  const int at = static_cast<int>(threadIdx.x);
  const float sum = warp_sum(at < p.k / kA16Rows ? step_await(p.from_squares + at) : 0.0f);
  if (lane == 0) reinterpret_cast<float*>(smem + s.square_at)[warp] = sum;
}

/// The block's finished sums to where they belong, a tile (gate and up: two) a warp. old: of the warp's first tile, and
/// weight its relay_norm.
template <typename T>
GALVANI_DEVICE void step_finish(const StepArgs& s, const StepProduct& p, const unsigned char* smem,
                                const StepTiles& tiles, float old, float weight, int warp, int lane) {
  const int total = tiles.count * p.chunks * (p.pair > 0 ? 2 : 1);
  if (warp >= tiles.count) return;
  float inverse = 1;
  if (kIsBf16Type<T> && p.input == StepInput::kNormed)
    inverse = reinterpret_cast<const float*>(smem + s.square_at)[kStepWarps];
  for (int tile = warp; tile < tiles.count; tile += kStepWarps) {
    float value = step_join(s, smem, tile, p.chunks, total, lane) * inverse;
    if (p.output == StepOutput::kGated) {
      const float up = step_join(s, smem, tiles.count + tile, p.chunks, total, lane) * inverse;
      value = gated_mlp_value<true>(p.gate, value, up, p.alpha, p.limit);
    }
    // Lanes 16 and up have the same.
    const int row = (tiles.first + tile) * kA16Rows + lane;
    const bool writes = lane < kA16Rows && (p.pair > 0 || row < p.n);
    if (p.output == StepOutput::kStoreHalf || p.output == StepOutput::kGated) {
      if (p.relay != nullptr) step_hand<T>(p.relay, row, value, writes);
      if (writes) static_cast<T*>(p.y)[row] = from_f32<T>(value);
      continue;
    }
    float* const to = static_cast<float*>(p.y) + row;
    if (p.output == StepOutput::kAdd && writes) value += tile == warp ? old : __ldcg(to);
    if (p.relay != nullptr) {
      if (tile != warp) weight = p.relay_norm == nullptr || !writes ? 1.0f : load_early(p.relay_norm + row);
      const float one = p.relay_plus_one && p.relay_norm != nullptr ? 1.0f : 0.0f;
      step_hand<T>(p.relay, row, value * (weight + one), writes);
      float squares = writes ? value * value : 0.0f;
#pragma unroll
      for (int step = 1; step < kA16Rows; step *= 2) squares += __shfl_xor_sync(kFullMask, squares, step);
      if (lane == 0) step_hand_sum(p.relay_squares + tiles.first + tile, squares);
    }
    if (writes) *to = value;
  }
}

/// The warp's part of the block's chunks. Where a row tile is all its own, the tile's sums are finished; else they are
/// a part, of its first tile or of another.
template <int kSub, A16Scale kScale>
GALVANI_DEVICE void step_walk(const StepArgs& s, const FewRange& r, StepRing& ring, unsigned char* smem, int warp,
                              int lane) {
  using Chunk = StepChunk<kSub, kScale>;
  const typename Chunk::Lane l = Chunk::place(lane);
  const StepSum* const sum_base = reinterpret_cast<const StepSum*>(smem + s.sum_at) + lane % 4 / 2;
  StepX b;
  int left = r.end - r.begin, chunk = r.first_chunk;
  for (int tile = r.first; left > 0; ++tile, chunk = 0) {
    const int here = min(left, r.chunks - chunk);
    left -= here;
    const unsigned char* x = smem + s.x_at + l.x + chunk * Chunk::kUnits * kStepUnitX;
    const StepSum* sums = sum_base + chunk * Chunk::kSubgroups;
    float out[2] = {};
    for (int i = 0; i < here; ++i) {
      Chunk::add_all(smem + ring.wait(), x, b, sums, l, lane, out);
      ring.release();
      x += Chunk::kUnits * kStepUnitX;
      sums += Chunk::kSubgroups;
    }
    // Over the lanes of a row.
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      out[h] += __shfl_xor_sync(kFullMask, out[h], 1);
      out[h] += __shfl_xor_sync(kFullMask, out[h], 2);
    }
    float* to = reinterpret_cast<float*>(smem + s.red_at) + (2 * warp + (tile == r.first ? 0 : 1)) * kA16Rows;
    if (chunk == 0 && here == r.chunks) to = reinterpret_cast<float*>(smem + s.part_at) + tile * kA16Rows;
    if (lane % 4 < 2) to[lane / 4 + lane % 4 * 8] = lane % 4 == 0 ? out[0] : out[1];
  }
}

/// Until `target` blocks have arrived; all threads. full: what they wrote before is seen then.
GALVANI_DEVICE void step_wait(const unsigned* arrived, unsigned target, bool full) {
  if (threadIdx.x == 0) {
    if (full) {
      while (static_cast<int>(grid_poll(arrived) - target) < 0) {
      }
    } else {
      while (static_cast<int>(grid_poll_relaxed(arrived) - target) < 0) {
      }
    }
  }
  __syncthreads();
}

template <typename T>
GALVANI_DEVICE void step_product(const StepArgs& s, const StepPhase& phase, unsigned char* smem, int warp, int lane,
                                 unsigned target) {
  const StepProduct& p = phase.product;
  const StepAttention& next = phase.attention;
  const StepTiles tiles(p);
  const FewRange r = step_range(p, warp);
  StepRing ring(s, smem, warp, false);
  // What is added to is this block's own, from phases that lie behind a barrier.
  float old = 0, weight = 1;
  if (p.output == StepOutput::kAdd && warp < tiles.count && lane < kA16Rows) {
    const int row = (tiles.first + warp) * kA16Rows + lane;
    if (row < p.n) old = __ldcg(static_cast<float*>(p.y) + row);
    if (p.relay != nullptr && p.relay_norm != nullptr) weight = load_early(p.relay_norm + row);
  }
  if (next.asked != 0) {
    StepAsk asks;
    asks.ask(next, *reinterpret_cast<const StepRow*>(smem + s.row_at), warp, lane);
    if (lane == 0) reinterpret_cast<StepAsk*>(smem + s.ask_at)[warp] = asks;
  }
  const StepPieces piece(p);
  const bool normed = p.input == StepInput::kNormed;
  if (normed && p.from == nullptr) {
    StepNormWeights weights;
    weights.load(p, piece);
    step_wait(s.arrived, target, phase.full != 0);
    step_load_normed<T>(s, p, piece, weights, smem, warp, lane);
  } else {
    step_wait(s.arrived, target, phase.full != 0);
    if (normed) step_load_squares(s, p, smem, warp, lane);
    step_load_x<T>(s, p, piece, smem);
  }
  // One warp has the norm's factor ready when the sums are finished.
  if (kIsBf16Type<T> && p.input == StepInput::kNormed && warp == kStepWarps - 1) {
    const float inverse = step_norm_inverse(s, p, smem, lane);
    if (lane == 0) reinterpret_cast<float*>(smem + s.square_at)[kStepWarps] = inverse;
  }
  const auto walk = [&]<A16Scale kScale>() {
    if (p.subgroups == 1)
      step_walk<1, kScale>(s, r, ring, smem, warp, lane);
    else if (p.subgroups == 2)
      step_walk<2, kScale>(s, r, ring, smem, warp, lane);
    else
      step_walk<4, kScale>(s, r, ring, smem, warp, lane);
  };
  if (p.scale == static_cast<int>(A16Scale::kBF16))
    walk.template operator()<A16Scale::kBF16>();
  else if (p.scale == static_cast<int>(A16Scale::kF16))
    walk.template operator()<A16Scale::kF16>();
  else
    walk.template operator()<A16Scale::kF32>();
  ring.save();
  __syncthreads();
  if (phase.next_full == 0) step_sign(s);
  step_finish<T>(s, p, smem, tiles, old, weight, warp, lane);
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
