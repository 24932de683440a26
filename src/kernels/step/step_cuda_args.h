#pragma once
/// A decode step of one token as a list of phases that one kernel works off. Plain data for host and device; device
/// pointers, strides in elements. The formulas are those of the kernels that a phase stands for: norm.h,
/// qmatmul_cuda.h, rope.h, attention.h, elementwise.h.
#include "kernels/elementwise/elementwise_cuda_args.h"
#include "kernels/qmatmul/qmatmul_cuda_args.h"
#include "kernels/rope/rope_cuda_args.h"

namespace galvani::kernels {

enum class StepKind : int { kProduct, kAttention };
/// What a product multiplies: a row of 16-bit activations as it stands, or norm(x) of an f32 row.
enum class StepInput : int { kHalf, kNormed };
/// What becomes of a product: y = z or y += z in f32; y = z in the activations' type; act(z[i]) · z[inner + i].
enum class StepOutput : int { kStore, kAdd, kStoreHalf, kGated };

/// y (+)= W · x for one token.
struct StepProduct {
  const unsigned char* w;  ///< A16 units, all of one width a kernel
  const void* x;           ///< [k], 16-byte aligned
  void* y;                 ///< [n], or [n / 2] when gated
  const float* norm_w;     ///< [k] or null: 1
  /// [k]: what it multiplies (x · norm_w where that is normed), by words that say whether they have come
  /// (step_relay.cuh). Null: x as it stands.
  const void* from;
  const float* from_squares;  ///< [k / 16]: sums of squares of x, with a normed `from`
  void* relay;                ///< [n], or [n / 2] when gated: what the next phase takes `from`, or null
  float* relay_squares;       ///< [n / 16], with a relay of what was added to
  const float* relay_norm;    ///< [n] or null: 1; with relay_squares
  int relay_plus_one;
  float eps;
  int plus_one;
  StepInput input;
  StepOutput output;
  int n, k, units, unit_bytes, subgroups, scale;  ///< as in QmatmulArgs
  int chunks;                                     ///< of a row tile, all whole
  unsigned chunks_inverse;                        ///< as in QmatmulFewArgs
  int pair;                                       ///< gated: row tiles between a gate's rows and its up's; else 0
  int tiles, tiles_rest;  ///< row tiles (gated: pairs of them) of each block; the first tiles_rest blocks have one more
  Gate gate;
  float alpha, limit;
};

/// From q, k, v side by side in f32 to the heads' values: qkv_finish, attention_decode and attention_merge of one row.
struct StepAttention {
  QkvArgs qkv;  ///< rows 1; q, q_stride unused; type: of the pages
  ScoreArgs score;
  const float* sinks;  ///< [heads] or null
  float* part_out;     ///< [segments][heads][v_dim]
  float* part_stat;    ///< [segments][heads][2]
  unsigned* arrived;   ///< [kv_heads], zeros before and after the kernel
  void* out;           ///< [heads · v_dim] of `type`
  void* relay;         ///< the same for the next phase, as StepProduct has it, or null
  int group;           ///< query heads a kv head
  int most;            ///< segments that have a block each: blocks / kv_heads, at least 1
  unsigned inverse;    ///< ⌈2^32 / kv_heads⌉
  int asked;           ///< 1: the product before asks for its first keys and values
};

struct alignas(16) StepPhase {
  StepKind kind = StepKind::kProduct;
  int next_norm_bytes = 0;
  int full = 1;       ///< the barrier before it is for everything written before, not only a sign that `from` has come
  int next_full = 1;  ///< the same of the next phase
  int blank_bytes = 0, pad = 0;
  unsigned char* blank = nullptr;    ///< what the epoch before has used of the relays' memory
  const float* next_norm = nullptr;  ///< weights of the norm that a later phase begins with; for the L2
  StepProduct product{};             ///< of a product alone
  StepAttention attention{};         ///< of attention; of a product before one, that one's (asked: 1)
};
/// Phases are copied to shared memory 16 bytes a thread.
constexpr int kStepPhaseBytes = static_cast<int>(sizeof(StepPhase));
static_assert(kStepPhaseBytes % 16 == 0 && kStepPhaseBytes <= 512);

constexpr int kStepWarps = kFewWarps;
constexpr int kStepThreads = kStepWarps * 32;
constexpr int kStepMostStages = 8;
constexpr int kStepKeyWarps = 8;                ///< of them that read keys and values
constexpr int kStepRound = 16 * kStepKeyWarps;  ///< keys of a block at once
constexpr int kStepSegment = 2 * kStepRound;    ///< fewest keys of a segment: merging costs more than a round
constexpr int kStepMostKvHeads = 128;
constexpr int kStepMostGroup = 8;      ///< query heads a kv head
constexpr int kStepMostHidden = 8192;  ///< a normed row: two pieces of eight a thread

/// Bytes of x a column, and of a subgroup's sum and unit (step_walk.cuh).
constexpr int kStepColumnBytes = 3, kStepSumBytes = 8;

/// A block's weights of one product: `chunks` chunks one after the other, from `half` on `jump` bytes further.
struct alignas(16) StepRun {
  const unsigned char* from;
  long long jump;
  int chunks, half, chunk_bytes, pad;
};

constexpr int kStepRingBytes = 32;  ///< of a warp's ring between phases
constexpr int kStepAskBytes = 16;   ///< of the keys that a warp has asked for
constexpr int kStepRowBytes = 16;   ///< of the row's position and sequence

/// Offsets are bytes of dynamic shared memory; the rings come first, 16 of `stages` slots.
struct StepArgs {
  const StepPhase* phases;
  int count;
  const int* position;  ///< of the row, and its sequence, where attention phases are asked for (StepAttention::asked)
  const int* sequence;
  unsigned* arrived;  ///< one counter, kStepBlank before the kernel: blocks that have passed a barrier, over all phases
  int stages, slot_bytes;
  int x_at, sum_at, red_at, part_at, square_at, phase_at, run_at, ring_at, ask_at, row_at, barrier_at;
};

/// Memory of a launch, all of it blank before: the counter, then two sets of relays. A blank word is an f32 that has
/// not come, or two 16-bit elements: cvt makes 0x7fff of every NaN (PTX ISA), in both types.
constexpr unsigned kStepBlank = 0xffffffffu;
constexpr int kStepCounterBytes = 128;
constexpr int kStepMostRelay = 1 << 20;  ///< bytes of a set; more of them are separated by full barriers

constexpr int kStepRowPad = 8;  ///< floats between rows of sums that attention's warps find (step_attention.cuh)

/// Bytes that attention needs from x_at on: queries, then what its warps have found.
constexpr int step_attention_bytes(int heads, int kv_heads, int dim) {
  const int group = heads / kv_heads;
  return (kStepMostGroup + 2) * dim * 2 + kStepKeyWarps * group * (dim + kStepRowPad) * 4 + kStepKeyWarps * 8 * 2 * 4 +
         16;
}

}  // namespace galvani::kernels
