#pragma once
/// attention_decode.cuh's decode with whole pages brought by bulk copies (9.0 and newer): what is under way is a ring
/// in shared memory, not registers. A page of a kv head is 64 tokens in one piece, keys and values each.
///
/// The arithmetic is attention_decode.cuh's: warp w has keys 16w … 16w + 15 of each page, in the order of the pages.
#include "kernels/attention/attention_decode.cuh"
#include "kernels/common/copy.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS::attn {

/// Dynamic shared memory: stages of a page of keys and one of values, then what merge_warps wants.
template <typename T, int D, int kStages>
__device__ __forceinline__ void attention_decode_ring(const AttentionRowsArgs& args) {
  constexpr unsigned kPageBytes = kPage * D * 2, kStageBytes = 2 * kPageBytes;
  GALVANI_DYNAMIC_SHARED(unsigned char, ring_shared, 128);
  __shared__ __align__(8) unsigned long long barriers[2][kStages];
  float* const merge_shared = reinterpret_cast<float*>(ring_shared + kStages * kStageBytes);
  const unsigned full = shared_address(barriers[0]), empty = shared_address(barriers[1]);
  const unsigned ring = shared_address(ring_shared);
  if (threadIdx.x == 0) {
    for (int s = 0; s < kStages; ++s) {
      barrier_init(full + s * 8, 1);
      barrier_init(empty + s * 8, kDecodeWarps);
    }
    fence_barrier_init();
  }
  __syncthreads();
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int group = args.heads / args.kv.kv_heads, blocks_per_head = (group + 7) / 8;
  const int columns = args.kv.kv_heads * blocks_per_head;
  const int segment_tokens = args.schedule[0];
  const int* prefix = args.schedule + 1;
  const int items = prefix[args.rows] * columns;
  int stage = 0;
  unsigned phase = 0;  // of `stage`
  for (int item = blockIdx.x; item < items; item += gridDim.x) {
    const int column = item % columns, part = item / columns;
    const int kv_head = column / blocks_per_head, first_of_group = (column % blocks_per_head) * 8;
    const int head = kv_head * group + first_of_group, heads_here = min(8, group - first_of_group);
    const auto [row, position, sequence, before] = find_segment(args, part, lane);
    const int visible = args.score.window > 0 ? max(0, position - args.score.window + 1) : 0;
    const int segment = visible / segment_tokens + part - before;
    const int first = max(visible, segment * segment_tokens), last = min(position, (segment + 1) * segment_tokens - 1);
    const int page0 = first / kPage, pages = last >= first ? last / kPage - page0 + 1 : 0;
    const int* const blocks = args.tables.blocks + static_cast<long long>(sequence) * args.tables.max_blocks + page0;
    const char* const k_base = args.kv.k + static_cast<long long>(kv_head) * kPageBytes;
    const char* const v_base = args.kv.v + static_cast<long long>(kv_head) * kPageBytes;
    // Page ids of 32 pages, one a lane.
    int ids = lane < pages ? blocks[lane] : 0;
    const auto issue = [&](int page, int to) {
      const long long id = __shfl_sync(0xffffffffu, ids, page % 32);
      if (lane == 0) {
        const unsigned barrier = full + to * 8, at = ring + to * kStageBytes;
        barrier_arrive_expect(barrier, kStageBytes);
        bulk_copy(at, k_base + id * args.kv.k_page_stride, kPageBytes, barrier);
        bulk_copy(at + kPageBytes, v_base + id * args.kv.v_page_stride, kPageBytes, barrier);
      }
    };
    if (warp == 0)
      for (int i = 0, to = stage; i < min(pages, kStages); ++i, to = to + 1 == kStages ? 0 : to + 1) issue(i, to);
    DecodeState<T, D, D> state;
    load_queries(state, static_cast<const T*>(args.q) + row * args.q_stride + static_cast<long long>(head) * D,
                 heads_here, lane);
    for (int i = 0; i < pages; ++i) {
      const int key0 = (page0 + i) * kPage + 16 * warp;
      const T* const at = reinterpret_cast<const T*>(ring_shared + stage * kStageBytes) + 16 * warp * D;
      barrier_wait(full + stage * 8, phase);
      if (key0 <= last && key0 + 15 >= first) {
        uint4 k[D / 32][2], v[D / 64][4];
        load_keys<T, D, D>(k, at, lane);
        float s[4];
        scores(state, k, s);
        load_values<T, D, D>(v, at + kPage * D, lane, key0, first, last);
        unsigned p[2];
        weigh(state, s, args.score, key0, first, last, lane, p);
        add_values(state, v, p);
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(empty + stage * 8);
      const int next = i + kStages;
      if (next < pages) {
        if (next % 32 == 0) ids = next + lane < pages ? blocks[next + lane] : 0;
        if (warp == i % kDecodeWarps) {  // the warps take turns at waiting for each other
          barrier_wait(empty + stage * 8, phase);
          __syncwarp();
          issue(next, stage);
        }
      }
      if (++stage == kStages) stage = 0, phase ^= 1u;
    }
    const long long slot = static_cast<long long>(part) * args.heads + head;
    merge_warps(state, merge_shared, heads_here, args.part_out + slot * D, args.part_stat + slot * 2);
  }
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS::attn
