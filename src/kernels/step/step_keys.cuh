#pragma once
// Which keys a block of a decode step attends to, and the asking for them: keys and values of the steps before come
// from memory, and no phase of this step has to end for them.
#include "kernels/attention/attention_decode.cuh"
#include "kernels/step/step_cuda_args.h"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// Segments of a row's visible keys: few enough that each has a block, none shorter than two rounds of the warps.
struct StepSegments {
  int first, last, length, count;
  GALVANI_DEVICE StepSegments(int position, int window, int most) {
    first = window > 0 ? max(0, position - window + 1) : 0;
    last = position;
    const int keys = last - first + 1;
    length = kStepSegment;
    count = (keys + kStepSegment - 1) / kStepSegment;
    if (count <= most) return;  // or divisions, each 100 cycles that nothing hides
    length = (count + most - 1) / most * kStepSegment;
    count = (keys + length - 1) / length;
  }
};

/// An item of a block's: a segment of a kv head. Segments of a head are kv_heads items apart.
struct StepItem {
  int kv_head, segment;
  GALVANI_DEVICE StepItem(const StepAttention& a, int item) {
    const int kv_heads = a.qkv.kv.kv_heads;
    segment = kv_heads == 1 ? item : static_cast<int>(__umulhi(static_cast<unsigned>(item), a.inverse));
    kv_head = item - segment * kv_heads;
  }
};

/// The L2 asked for sixteen keys and their values from key `from` on, of the sequence's page `page`. A lane a line of
/// 128 bytes: two warps of 128 dims (part 0 has the keys, part 1 the values), one of 64.
GALVANI_DEVICE void step_ask_page(const StepAttention& a, int kv_head, int from, int page, int part, int lane) {
  const PagedKv& kv = a.qkv.kv;
  const int lines = kv.k_dim / 4;
  const bool values = kv.k_dim == 128 ? part == 1 : lane >= lines;
  const char* const at = (values ? kv.v : kv.k) + page * (values ? kv.v_page_stride : kv.k_page_stride);
  prefetch_l2(at + ((kv_head * attn::kPage + from % attn::kPage) * kv.k_dim + lane % lines * 64) * 2);
}

/// What a block knows of the row from the kernel's beginning on.
struct StepRow {
  int position, sequence;
};

/// A warp's first keys of its block's first item: asked for while the phase before waits, loaded while this one does.
struct alignas(16) StepAsk {
  int page[2] = {0, 0};  ///< of its first two rounds, where they have keys
  int pad[2] = {0, 0};
  GALVANI_DEVICE void ask(const StepAttention& a, const StepRow& row, int warp, int lane) {
    const StepItem item(a, static_cast<int>(blockIdx.x));
    const StepSegments segments(row.position, a.score.window, a.most);
    const int part = warp / kStepKeyWarps;
    if (item.segment >= segments.count || part >= a.qkv.kv.k_dim / 64) return;
    const int first = segments.first + item.segment * segments.length;
    const int last = min(segments.last, first + segments.length - 1);
    const int key = (first & ~15) + 16 * (warp % kStepKeyWarps);
    const int* const blocks = a.qkv.tables.blocks + static_cast<long long>(row.sequence) * a.qkv.tables.max_blocks;
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (key + i * kStepRound <= last) page[i] = load_early(blocks + (key + i * kStepRound) / attn::kPage);
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (key + i * kStepRound <= last) step_ask_page(a, item.kv_head, key + i * kStepRound, page[i], part, lane);
  }
};
static_assert(sizeof(StepAsk) == kStepAskBytes);

}  // namespace galvani::kernels::GALVANI_CUDA_NS
