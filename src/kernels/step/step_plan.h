#pragma once
/// How the phases of a decode step are shared out over blocks, and the shared memory of one. Pure functions of the part
/// and the shapes; no CUDA include.
#include <cstdint>

#include "kernels/step/step_cuda_args.h"

namespace galvani::kernels {

/// Most that phases of a step ask of a block's shared memory.
struct StepNeeds {
  int columns = 0;      ///< of x, in whole chunks
  int sums = 0;         ///< subgroups of x
  int rows = 0;         ///< sums of a block
  int attention = 0;    ///< step_attention_bytes
  int chunk_bytes = 0;  ///< of weights
  int phases = 0;
};

constexpr int step_max(int a, int b) { return a > b ? a : b; }

/// A layer's keys and values up to which a step in one kernel is no slower than a launch an operation, whose attention
/// has more of them under way: Llama 3.1 8B on an H200, README.md.
constexpr int64_t kStepMostKvBytes = int64_t{64} << 20;
/// Keys of a step that is one kernel, at most. key_bytes: a position's keys and values in the widest layer that sees
/// all positions; 0: no layer does, and every step is short.
constexpr int64_t step_most_keys(int64_t key_bytes) { return key_bytes > 0 ? kStepMostKvBytes / key_bytes : INT64_MAX; }

/// Fills what follows from n, k, units, unit_bytes and whether gate and up are paired.
constexpr void step_share(StepProduct& p, int blocks, bool paired) {
  const int row_tiles = (p.n + kA16Rows - 1) / kA16Rows, tiles = paired ? row_tiles / 2 : row_tiles;
  p.pair = paired ? tiles : 0;
  p.tiles = tiles / blocks, p.tiles_rest = tiles % blocks;
  p.chunks = p.units / kFewChunk;
  // Fewer columns than a chunk has: refused below.
  p.chunks_inverse =
      p.chunks < 1 ? 0 : static_cast<unsigned>((0x100000000ll + p.chunks - 1) / p.chunks - (p.chunks == 1));
}

/// Why the kernel cannot do this product, or null. It is shared out already.
constexpr const char* step_refusal(const StepProduct& p) {
  if (p.k % (kFewChunk * kA16Cols) != 0) return "columns are no multiple of 256";
  if (p.input == StepInput::kNormed && p.k > kStepMostHidden) return "a normed row of more than 8192 elements";
  if (p.output == StepOutput::kGated && p.n % (2 * kA16Rows) != 0) return "gate and up rows are no multiple of 16";
  const long long tiles = (p.tiles + (p.tiles_rest > 0)) * (p.pair > 0 ? 2ll : 1ll);
  if (tiles * p.chunks * p.chunks >= 0x100000000ll || tiles * p.chunks * kStepWarps >= 0x7fffffffll)
    return "more weights than a block can number";
  return nullptr;
}

constexpr void step_need(StepNeeds& needs, const StepProduct& p) {
  const int tiles = (p.tiles + (p.tiles_rest > 0)) * (p.pair > 0 ? 2 : 1);
  needs.columns = step_max(needs.columns, p.k);
  needs.sums = step_max(needs.sums, p.units * p.subgroups);
  needs.rows = step_max(needs.rows, tiles * kA16Rows);
  needs.chunk_bytes = step_max(needs.chunk_bytes, kFewChunk * p.unit_bytes);
}

struct StepLayout {
  StepArgs args{};  ///< but for pointers
  int smem = 0;
  bool ok = false;  ///< false: fewer than two slots a ring
};

constexpr StepLayout step_layout(const StepNeeds& needs, int smem_limit) {
  StepLayout layout;
  StepArgs& a = layout.args;
  const auto align = [](int x) { return (x + 127) / 128 * 128; };
  const int x = align(needs.columns * kStepColumnBytes), sums = align(needs.sums * kStepSumBytes),
            red = kStepWarps * 2 * kA16Rows * 4, part = align(needs.rows * 4);
  const int squares = kStepWarps * 4 + 4;  // and the norm's factor
  const int scratch = align(step_max(x + sums + red + part + squares, needs.attention));
  const int phases = 2 * kStepPhaseBytes, runs = needs.phases * static_cast<int>(sizeof(StepRun)) +
                                                 kStepWarps * (kStepRingBytes + kStepAskBytes) + kStepRowBytes;
  const int fixed = scratch + align(phases + runs);
  a.slot_bytes = (needs.chunk_bytes + 15) / 16 * 16;
  a.stages = (smem_limit - fixed) / (kStepWarps * (a.slot_bytes + 8));
  if (a.stages > kStepMostStages) a.stages = kStepMostStages;
  if (a.stages < 2) return layout;
  a.x_at = align(kStepWarps * a.stages * a.slot_bytes);
  a.sum_at = a.x_at + x;
  a.red_at = a.sum_at + sums;
  a.part_at = a.red_at + red;
  a.square_at = a.part_at + part;
  a.phase_at = a.x_at + scratch;
  a.ring_at = a.phase_at + phases;
  a.ask_at = a.ring_at + kStepWarps * kStepRingBytes;
  a.row_at = a.ask_at + kStepWarps * kStepAskBytes;
  a.run_at = a.row_at + kStepRowBytes;
  a.barrier_at = a.phase_at + align(phases + runs);
  layout.smem = a.barrier_at + kStepWarps * a.stages * 8;
  a.count = needs.phases;
  layout.ok = layout.smem <= smem_limit;
  return layout;
}

}  // namespace galvani::kernels
