#pragma once
/// Attention of rows with one query each (decode): the keys of a row are cut into segments, one block a segment and kv
/// head (up to 8 of its query heads), then the segments are merged in order. NVRTC compiles it alone.
///
/// Scores are computed transposed, Sᵀ = K·Qᵀ and Oᵀ = Vᵀ·Pᵀ: 16 keys (or value dims) are the M side of m16n8k16 and 8
/// query heads its N side. Both sides' inner index may be permuted as long as both agree, so each lane loads 16 bytes
/// of a key (dims 8t … 8t+7 of every 32) straight from its page, and those registers are A fragments as they are; value
/// rows need one byte permutation a register. K and V pass through no shared memory.
#include "kernels/attention/attention_device.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS::attn {

constexpr int kDecodeWarps = 4;
constexpr int kDecodePrefetch = 1;  ///< steps behind the first one that L2 is asked for before the wait

/// The row that segment `part` belongs to, with what the row's table entries say. The warp looks at 32 rows at a time,
/// so that few loads wait for each other before the first key can be asked for. Tables that copies brought, all of it,
/// so it may be called before wait_for_previous().
struct SegmentRow {
  int row, position, sequence, before;  ///< before: segments of the rows before it
};
__device__ __forceinline__ SegmentRow find_segment(const AttentionRowsArgs& args, int part, int lane) {
  const int* prefix = args.schedule + 1;
  for (int base = 0;; base += 32) {
    const int index = min(base + lane, args.rows - 1);
    const int row = args.at != nullptr ? load_early(args.at + index) : index;
    const int before = load_early(prefix + index), end = load_early(prefix + index + 1);
    const int position = load_early(args.positions + row), sequence = load_early(args.sequence + row);
    const unsigned found = __ballot_sync(0xffffffffu, before <= part && part < end);
    if (found == 0) continue;
    const int from = __ffs(static_cast<int>(found)) - 1;
    return {__shfl_sync(0xffffffffu, row, from), __shfl_sync(0xffffffffu, position, from),
            __shfl_sync(0xffffffffu, sequence, from), __shfl_sync(0xffffffffu, before, from)};
  }
}

template <typename T, int DK, int DV>
struct DecodeState {
  unsigned q[DK / 16][2];
  float o[DV / 16][4];
  float peak[2], sum[2];  // of heads 2t and 2t + 1
};

/// 16 keys from key0 on: K as A fragments of both 8-key halves, then V.
template <typename T, int DK, int DV>
__device__ __forceinline__ void load_keys(uint4 (&k)[DK / 32][2], const T* page_k, int lane) {
  const int g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int c = 0; c < DK / 32; ++c) {
    k[c][0] = load_streamed(page_k + g * DK + 32 * c + 8 * t);
    k[c][1] = load_streamed(page_k + (g + 8) * DK + 32 * c + 8 * t);
  }
}

template <typename T, int DK, int DV>
__device__ __forceinline__ void load_values(uint4 (&v)[DV / 64][4], const T* page_v, int lane, int key0, int first,
                                            int last) {
  const int g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int b = 0; b < DV / 64; ++b) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = 2 * t + (i & 1) + 8 * (i >> 1);
      v[b][i] = load_streamed(page_v + key * DV + 64 * b + 8 * g);
    }
  }
  // What the row does not see may hold anything, and 0 · NaN is not 0.
  if (key0 < first || key0 + 15 > last) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int key = key0 + 2 * t + (i & 1) + 8 * (i >> 1);
      if (key >= first && key <= last) continue;
#pragma unroll
      for (int b = 0; b < DV / 64; ++b) v[b][i] = make_uint4(0, 0, 0, 0);
    }
  }
}

template <typename T, int DK, int DV>
__device__ __forceinline__ void scores(const DecodeState<T, DK, DV>& state, const uint4 (&k)[DK / 32][2],
                                       float (&s)[4]) {
  float other[4] = {0, 0, 0, 0};
  s[0] = s[1] = s[2] = s[3] = 0;
#pragma unroll
  for (int c = 0; c < DK / 32; ++c) {
    const unsigned even[4] = {k[c][0].x, k[c][1].x, k[c][0].y, k[c][1].y};
    const unsigned odd[4] = {k[c][0].z, k[c][1].z, k[c][0].w, k[c][1].w};
    mma_m16n8k16<T>(s, even, state.q[2 * c]);
    mma_m16n8k16<T>(other, odd, state.q[2 * c + 1]);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) s[i] += other[i];
}

/// Scores to weights with a running peak; returns them packed as the B fragment of 16 keys × 8 heads.
template <typename T, int DK, int DV>
__device__ __forceinline__ void weigh(DecodeState<T, DK, DV>& state, float (&s)[4], const ScoreArgs& args, int key0,
                                      int first, int last, int lane, unsigned (&p)[2]) {
  const int g = lane >> 2;
  const bool low = key0 + g >= first && key0 + g <= last, high = key0 + g + 8 >= first && key0 + g + 8 <= last;
  s[0] = low ? score_log2(s[0], args) : minus_infinity();
  s[1] = low ? score_log2(s[1], args) : minus_infinity();
  s[2] = high ? score_log2(s[2], args) : minus_infinity();
  s[3] = high ? score_log2(s[3], args) : minus_infinity();
  float factor[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    float peak = fmaxf(s[h], s[h + 2]);
#pragma unroll
    for (int step = 4; step < 32; step *= 2) peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, step));
    peak = fmaxf(state.peak[h], peak);
    factor[h] = exp2_fast(state.peak[h] - peak);
    state.peak[h] = peak;
    s[h] = exp2_fast(s[h] - peak);
    s[h + 2] = exp2_fast(s[h + 2] - peak);
    state.sum[h] = state.sum[h] * factor[h] + (s[h] + s[h + 2]);
  }
  // Peaks soon stop moving; multiplying by 1 changes nothing.
  if (__any_sync(0xffffffffu, factor[0] != 1.0f || factor[1] != 1.0f)) {
#pragma unroll
    for (int j = 0; j < DV / 16; ++j) {
      state.o[j][0] *= factor[0];
      state.o[j][1] *= factor[1];
      state.o[j][2] *= factor[0];
      state.o[j][3] *= factor[1];
    }
  }
  p[0] = transpose8x8(pack2<T>(s[0], s[1]));
  p[1] = transpose8x8(pack2<T>(s[2], s[3]));
}

template <typename T, int DK, int DV>
__device__ __forceinline__ void add_values(DecodeState<T, DK, DV>& state, const uint4 (&v)[DV / 64][4],
                                           const unsigned (&p)[2]) {
#pragma unroll
  for (int b = 0; b < DV / 64; ++b) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const unsigned word[4] = {(&v[b][0].x)[j], (&v[b][1].x)[j], (&v[b][2].x)[j], (&v[b][3].x)[j]};
      const unsigned a[4] = {__byte_perm(word[0], word[1], 0x5410), __byte_perm(word[0], word[1], 0x7632),
                             __byte_perm(word[2], word[3], 0x5410), __byte_perm(word[2], word[3], 0x7632)};
      mma_m16n8k16<T>(state.o[4 * b + j], a, p);
    }
  }
}

/// Queries of 8 heads from `head` on, those beyond the kv head's as zeros.
template <typename T, int DK, int DV>
__device__ __forceinline__ void load_queries(DecodeState<T, DK, DV>& state, const T* q, int heads_here, int lane) {
  const int g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int c = 0; c < DK / 32; ++c) {
    uint4 x = make_uint4(0, 0, 0, 0);
    if (g < heads_here) x = *reinterpret_cast<const uint4*>(q + g * DK + 32 * c + 8 * t);
    state.q[2 * c][0] = x.x;
    state.q[2 * c][1] = x.y;
    state.q[2 * c + 1][0] = x.z;
    state.q[2 * c + 1][1] = x.w;
  }
#pragma unroll
  for (int j = 0; j < DV / 16; ++j) state.o[j][0] = state.o[j][1] = state.o[j][2] = state.o[j][3] = 0;
  state.peak[0] = state.peak[1] = minus_infinity();
  state.sum[0] = state.sum[1] = 0;
}

/// The warps' results, merged in the order of the warps, to part_out and part_stat. shared: [warps][8][DV + 4] floats,
/// then [warps][8][2].
template <typename T, int DK, int DV>
__device__ __forceinline__ void merge_warps(DecodeState<T, DK, DV>& state, float* shared, int heads_here, float* out,
                                            float* stat) {
  constexpr int kRow = DV + 4;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  float* stats = shared + kDecodeWarps * 8 * kRow;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
#pragma unroll
    for (int step = 4; step < 32; step *= 2) state.sum[h] += __shfl_xor_sync(0xffffffffu, state.sum[h], step);
    if (g == 0) {
      stats[(warp * 8 + 2 * t + h) * 2] = state.peak[h];
      stats[(warp * 8 + 2 * t + h) * 2 + 1] = state.sum[h];
    }
    float* row = shared + (warp * 8 + 2 * t + h) * kRow;
#pragma unroll
    for (int j = 0; j < DV / 16; ++j)
      *reinterpret_cast<float2*>(row + 64 * (j >> 2) + 8 * g + 2 * (j & 3)) =
          make_float2(state.o[j][h], state.o[j][2 + h]);
  }
  __syncthreads();
  for (int i = threadIdx.x; i < heads_here * (DV / 4); i += kDecodeWarps * 32) {
    const int head = i / (DV / 4), dim = 4 * (i % (DV / 4));
    float peak = minus_infinity();
    for (int w = 0; w < kDecodeWarps; ++w) peak = fmaxf(peak, stats[(w * 8 + head) * 2]);
    float4 total = make_float4(0, 0, 0, 0);
    float sum = 0;
    for (int w = 0; w < kDecodeWarps; ++w) {
      const float own = stats[(w * 8 + head) * 2], part = stats[(w * 8 + head) * 2 + 1];
      // A warp without keys has nothing to add; its factor would be 2^(−∞ + ∞) if no score was a number.
      if (own == minus_infinity() && part == 0) continue;
      const float factor = exp2_fast(own - peak);
      const float4 x = *reinterpret_cast<const float4*>(shared + (w * 8 + head) * kRow + dim);
      total.x += x.x * factor;
      total.y += x.y * factor;
      total.z += x.z * factor;
      total.w += x.w * factor;
      sum += part * factor;
    }
    *reinterpret_cast<float4*>(out + static_cast<long long>(head) * DV + dim) = total;
    if (dim == 0) {
      stat[2 * head] = peak;
      stat[2 * head + 1] = sum;
    }
  }
  __syncthreads();
}

/// Blocks that should fit on a multiprocessor: what the compiler may spend registers on.
template <int D>
constexpr int decode_blocks_per_sm() {
  return D <= 64 ? 4 : D <= 128 ? 3 : 2;
}

/// Where a row's keys and values of one kv head lie.
template <typename T, int DK, int DV>
struct DecodePages {
  const T *k, *v;
  long long k_stride, v_stride;  // elements between pages
  const int* blocks;

  __device__ __forceinline__ DecodePages(const AttentionRowsArgs& args, int sequence, int kv_head)
      : k(reinterpret_cast<const T*>(args.kv.k) + kv_head * kPage * DK),
        v(reinterpret_cast<const T*>(args.kv.v) + kv_head * kPage * DV),
        k_stride(args.kv.k_page_stride / 2),
        v_stride(args.kv.v_page_stride / 2),
        blocks(args.tables.blocks + static_cast<long long>(sequence) * args.tables.max_blocks) {}
  __device__ __forceinline__ int page(int key) const { return load_early(blocks + key / kPage); }
  __device__ __forceinline__ const T* keys(int page, int key) const { return k + page * k_stride + key % kPage * DK; }
  __device__ __forceinline__ const T* values(int page, int key) const { return v + page * v_stride + key % kPage * DV; }
  /// 16 keys and values into L2. Written they may be still: L2 is where all multiprocessors see the same.
  __device__ __forceinline__ void prefetch(int key, int lane) const {
    const int from = page(key);
#pragma unroll
    for (int line = lane; line < DK / 4; line += 32) prefetch_l2(keys(from, key) + 64 * line);
#pragma unroll
    for (int line = lane; line < DV / 4; line += 32) prefetch_l2(values(from, key) + 64 * line);
  }
};

/// Any grid: blocks take (segment, kv head, 8 query heads) in turn. Block: 32 · kDecodeWarps. Calls
/// wait_for_previous(); the tables, and where args.settled allows it the first keys and values, are asked for before.
template <typename T, int DK, int DV>
__device__ __forceinline__ void attention_decode(const AttentionRowsArgs& args) {
  GALVANI_DYNAMIC_SHARED(float, decode_shared, 16);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int group = args.heads / args.kv.kv_heads, blocks_per_head = (group + 7) / 8;
  const int columns = args.kv.kv_heads * blocks_per_head;
  const int segment_tokens = load_early(args.schedule);
  const int items = load_early(args.schedule + 1 + args.rows) * columns;
  bool waited = false;
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    const int column = item % columns, part = item / columns;
    const int kv_head = column / blocks_per_head, first_of_group = (column % blocks_per_head) * 8;
    const int head = kv_head * group + first_of_group, heads_here = min(8, group - first_of_group);
    const auto [row, position, sequence, before] = find_segment(args, part, lane);
    const int visible = args.score.window > 0 ? max(0, position - args.score.window + 1) : 0;
    const int segment = visible / segment_tokens + part - before;
    const int first = max(visible, segment * segment_tokens), last = min(position, (segment + 1) * segment_tokens - 1);
    const DecodePages<T, DK, DV> pages(args, sequence, kv_head);

    // Warps take every fourth step of 16 keys; keys and values of the next step are on their way as soon as those of
    // this one are used.
    int key0 = (first & ~15) + 16 * warp;
    uint4 k[DK / 32][2], v[DV / 64][4];
    int page = key0 <= last ? pages.page(key0) : 0;
    const auto load_both = [&] {
      load_keys<T, DK, DV>(k, pages.keys(page, key0), lane);
      load_values<T, DK, DV>(v, pages.values(page, key0), lane, key0, first, last);
    };
    const bool settled = !waited && args.settled && key0 + 15 < position, has = key0 <= last;
    if (settled && has) load_both();
    if (!waited) {
      for (int step = 1; step <= kDecodePrefetch; ++step)
        if (key0 + 16 * kDecodeWarps * step <= last) pages.prefetch(key0 + 16 * kDecodeWarps * step, lane);
      wait_for_previous();
      release_next();  // not before: 64 dims' decode is 2 % faster when the merge comes among its blocks this late
    }
    waited = true;
    DecodeState<T, DK, DV> state;
    load_queries(state, static_cast<const T*>(args.q) + row * args.q_stride + static_cast<long long>(head) * DK,
                 heads_here, lane);
    if (!settled && has) load_both();
    page = key0 + 16 * kDecodeWarps <= last ? pages.page(key0 + 16 * kDecodeWarps) : 0;
    for (; key0 <= last; key0 += 16 * kDecodeWarps) {
      const int next = key0 + 16 * kDecodeWarps;
      float s[4];
      scores(state, k, s);
      if (next <= last) load_keys<T, DK, DV>(k, pages.keys(page, next), lane);
      unsigned p[2];
      weigh(state, s, args.score, key0, first, last, lane, p);
      add_values(state, v, p);
      if (next <= last) {
        load_values<T, DK, DV>(v, pages.values(page, next), lane, next, first, last);
        if (next + 16 * kDecodeWarps <= last) page = pages.page(next + 16 * kDecodeWarps);
      }
    }
    const long long slot = static_cast<long long>(part) * args.heads + head;
    merge_warps(state, decode_shared, heads_here, args.part_out + slot * DV, args.part_stat + slot * 2);
  }
  if (!waited) wait_for_previous();
}

/// The end of attention_merge: sums [groups][v_dim] and their weights, in order, and the sink's.
/// Everything is asked for before anything is added.
constexpr int kMergeMostGroups = 8;
__device__ __forceinline__ void merge_groups(const AttentionRowsArgs& args, int row, int head, int groups,
                                             const float* sums, const float* weights, float sink, float peak) {
  const int dim = static_cast<int>(threadIdx.x), v_dim = args.kv.v_dim;
  if (dim >= v_dim) return;
  float part[kMergeMostGroups], weight[kMergeMostGroups];
#pragma unroll
  for (int g = 0; g < kMergeMostGroups; ++g) {
    part[g] = g < groups ? sums[g * v_dim + dim] : 0.0f;
    weight[g] = g < groups ? weights[g] : 0.0f;
  }
#pragma unroll
  for (int g = 1; g < kMergeMostGroups; ++g) part[0] += part[g], weight[0] += weight[g];
  if (args.sinks != nullptr) weight[0] += exp2_fast(sink - peak);
  store_as(args.out, row * args.out_stride + static_cast<long long>(head) * v_dim + dim, part[0] / weight[0],
           args.out_type);
}

/// Merges the segments of each row, every groups-th one in order, then the groups in order. Grid: (rows, heads); block:
/// attention_merge_threads(v_dim), at least v_dim threads; v_dim a multiple of 4. Calls wait_for_previous().
constexpr int kMergeThreads = 256;
__device__ __forceinline__ void attention_merge(const AttentionRowsArgs& args) {
  constexpr int kAhead = 4;  // segments whose sums are under way at a time, with the peaks: one wait for all of them
  __shared__ float4 sums[kMergeThreads];
  __shared__ float totals[kMergeMostGroups];
  const int index = blockIdx.x, head = blockIdx.y, v_dim = args.kv.v_dim;
  const int row = args.at != nullptr ? load_early(args.at + index) : index;
  const int lanes = v_dim / 4, groups = static_cast<int>(blockDim.x) / lanes;
  const int lane = static_cast<int>(threadIdx.x) % lanes, group = static_cast<int>(threadIdx.x) / lanes;
  const int* prefix = args.schedule + 1;
  const int begin = load_early(prefix + index), end = load_early(prefix + index + 1);
  const float sink = args.sinks != nullptr ? load_early(args.sinks + head) * kLog2E : minus_infinity();
  const long long out_at = row * args.out_stride + static_cast<long long>(head) * v_dim + 4 * lane;
  wait_for_previous();
  if (begin == end) {
    if (group == 0)
      for (int i = 0; i < 4; ++i) store_as(args.out, out_at + i, 0.0f, args.out_type);
    return;
  }
  const float2* stats = reinterpret_cast<const float2*>(args.part_stat) + head;
  const float* parts = args.part_out + static_cast<long long>(head) * v_dim + 4 * lane;
  float2 stat[kAhead];
  float4 x[kAhead];
  const auto load = [&](int from) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const long long s = from + i * groups;
      const bool there = s < end && group < groups;
      stat[i] = there ? stats[s * args.heads] : make_float2(minus_infinity(), 0);
      x[i] = there ? *reinterpret_cast<const float4*>(parts + s * args.heads * v_dim) : make_float4(0, 0, 0, 0);
    }
  };
  load(begin + group);
  float peak = sink;
  for (int s = begin + (static_cast<int>(threadIdx.x) & 31); s < end; s += 32)
    peak = fmaxf(peak, stats[static_cast<long long>(s) * args.heads].x);
#pragma unroll
  for (int step = 16; step > 0; step /= 2) peak = fmaxf(peak, __shfl_xor_sync(0xffffffffu, peak, step));
  float4 total = make_float4(0, 0, 0, 0);
  float sum = 0;
  for (int from = begin + group; from < end && group < groups;) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const float factor = exp2_fast(stat[i].x - peak);
      total.x += x[i].x * factor;
      total.y += x[i].y * factor;
      total.z += x[i].z * factor;
      total.w += x[i].w * factor;
      sum += stat[i].y * factor;
    }
    from += kAhead * groups;
    if (from < end) load(from);
  }
  sums[threadIdx.x] = total;
  if (lane == 0) totals[group] = sum;
  __syncthreads();
  merge_groups(args, row, head, groups, reinterpret_cast<const float*>(sums), totals, sink, peak);
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS::attn
