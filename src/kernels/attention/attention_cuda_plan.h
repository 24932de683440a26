#pragma once
/// Which attention kernel a GPU runs, as pure functions of the part and the layer. No CUDA include.
///
/// Arms: tiles (many consecutive rows of a sequence, mma.sync), decode (a query a row, keys split over blocks,
/// mma.sync), simt (every width and type, no matrix instructions). Rows of chunks shorter than kTileMinRows and all
/// rows under batch invariance go to decode or simt: one arm whatever the batch, split at borders that the batch does
/// not move.
#include <cstdint>

#include "core/dtype.h"
#include "device/device_caps.h"

namespace galvani::kernels {

enum class AttentionCudaArm { kAuto, kTiles, kDecode, kSimt };

/// A layer's constants, as far as the choice depends on them.
struct AttentionCudaShape {
  int heads = 0, kv_heads = 0, k_dim = 0, v_dim = 0;
  DType kv = DType::kBF16;
};

constexpr int kTileMinRows = 16;
constexpr int kAttentionWarps = 4;  // of a block of decode and simt

/// One arm for this part and layer, or why not.
struct AttentionCudaChoice {
  const char* kernel = nullptr;  ///< null: refused
  const char* refusal = nullptr;
  int rows = 0;  ///< of a tile
  int keys = 0;  ///< of a step of wgmma's, whose kernels take tensor maps of the pages; 0: another kernel
  int threads = 0, shared_bytes = 0;
  int blocks_per_sm = 0;  ///< decode: how many blocks to keep running
};

namespace attention_plan {

constexpr AttentionCudaChoice refuse(const char* reason) {
  AttentionCudaChoice choice;
  choice.refusal = reason;
  return choice;
}

/// Matrix arms share what they ask of a layer.
constexpr const char* matrix_refusal(const DeviceCaps& caps, const AttentionCudaShape& shape) {
  if (shape.kv == DType::kF32) return "keys and values are f32; matrix arms take f16 and bf16";
  if (shape.k_dim != shape.v_dim) return "keys and values differ in width";
  if (shape.k_dim != 64 && shape.k_dim != 128 && shape.k_dim != 256) return "head width is not 64, 128 or 256";
  if (!caps.has(Feature::kLdmatrix)) return "this part has no ldmatrix (from 7.5 on)";
  if (shape.kv == DType::kBF16 && !caps.has(Feature::kBf16)) return "this part multiplies no bf16 (from 8.0 on)";
  return nullptr;
}

constexpr int width_index(int dim) { return dim == 64 ? 0 : dim == 128 ? 1 : 2; }
constexpr int kDecodeBlocks[3] = {4, 3,
                                  2};  // resident on a multiprocessor: attention_decode.cuh's decode_blocks_per_sm

}  // namespace attention_plan

constexpr AttentionCudaChoice plan_attention_decode(const DeviceCaps& caps, const AttentionCudaShape& shape) {
  using namespace attention_plan;
  if (const char* reason = matrix_refusal(caps, shape)) return refuse(reason);
  constexpr const char* kNames[2][3] = {
      {"attention_decode_f16_d64_sm75", "attention_decode_f16_d128_sm75", "attention_decode_f16_d256_sm75"},
      {"attention_decode_bf16_d64_sm80", "attention_decode_bf16_d128_sm80", "attention_decode_bf16_d256_sm80"}};
  AttentionCudaChoice choice;
  const int width = width_index(shape.k_dim);
  choice.kernel = kNames[shape.kv == DType::kBF16][width];
  choice.rows = 1;
  choice.threads = 32 * kAttentionWarps;
  choice.shared_bytes = kAttentionWarps * 8 * (shape.v_dim + 4 + 2) * 4;
  choice.blocks_per_sm = kDecodeBlocks[width];
  if (choice.shared_bytes > caps.smem_optin) return refuse("a block's sums do not fit this part's shared memory");
  return choice;
}

/// Threads of a block that merges the segments of a row and head: 4 dims a thread, so that 4 groups share the segments.
constexpr int attention_merge_threads(int v_dim) { return v_dim > 128 ? 256 : 128; }

/// wgmma where there is one and the longest chunk fills more than half a tile of it; else full tiles when the longest
/// chunk fills one and shared memory allows it, else half ones. Full and half tiles give the same bits.
constexpr AttentionCudaChoice plan_attention_tiles(const DeviceCaps& caps, const AttentionCudaShape& shape,
                                                   int longest_chunk, bool use_wgmma = true) {
  using namespace attention_plan;
  if (const char* reason = matrix_refusal(caps, shape)) return refuse(reason);
  if (longest_chunk < kTileMinRows) return refuse("the chunks are shorter than 16 rows");
  constexpr const char* kNames[2][3][2] = {{{"attention_tiles_f16_d64_sm75", "attention_tiles_f16_d64_half_sm75"},
                                            {"attention_tiles_f16_d128_sm75", "attention_tiles_f16_d128_half_sm75"},
                                            {"attention_tiles_f16_d256_sm75", "attention_tiles_f16_d256_half_sm75"}},
                                           {{"attention_tiles_bf16_d64_sm80", "attention_tiles_bf16_d64_half_sm80"},
                                            {"attention_tiles_bf16_d128_sm80", "attention_tiles_bf16_d128_half_sm80"},
                                            {"attention_tiles_bf16_d256_sm80", "attention_tiles_bf16_d256_half_sm80"}}};
  constexpr const char* kWgmma[2][3] = {
      {"attention_wgmma_f16_d64_sm90a", "attention_wgmma_f16_d128_sm90a", "attention_wgmma_f16_d256_sm90a"},
      {"attention_wgmma_bf16_d64_sm90a", "attention_wgmma_bf16_d128_sm90a", "attention_wgmma_bf16_d256_sm90a"}};
  if (use_wgmma && longest_chunk > 64 && caps.has(Feature::kWgmma)) {
    AttentionCudaChoice choice;
    choice.kernel = kWgmma[shape.kv == DType::kBF16][width_index(shape.k_dim)];
    choice.rows = 128;
    choice.threads = 384;
    choice.keys = shape.k_dim <= 128 ? 128 : 64;  // attention_wgmma.cuh's WgmmaPlan: of a step, two of them in a ring
    choice.shared_bytes = 1024 + 128 * shape.k_dim * 2 + 2 * 2 * choice.keys * shape.k_dim * 2 + 256;
    if (choice.shared_bytes <= caps.smem_optin) return choice;
  }
  for (int half = longest_chunk > 64 ? 0 : 1; half < 2; ++half) {
    AttentionCudaChoice choice;
    choice.kernel = kNames[shape.kv == DType::kBF16][width_index(shape.k_dim)][half];
    choice.rows = half ? 64 : 128;
    choice.threads = half || shape.k_dim < 256 ? 128 : 256;
    choice.shared_bytes = (choice.rows + 2 * 64) * shape.k_dim * 2;  // queries, a page of K, a page of V
    if (choice.shared_bytes <= caps.smem_optin) return choice;
  }
  return refuse("a tile's queries and a page do not fit this part's shared memory");
}

constexpr AttentionCudaChoice plan_attention_simt(const DeviceCaps& caps, const AttentionCudaShape& shape) {
  using attention_plan::refuse;
  if (shape.v_dim > 512) return refuse("value heads wider than 512");
  if (!caps.has(Feature::kLdmatrix)) return refuse("built for 7.5 and newer");
  AttentionCudaChoice choice;
  choice.kernel = shape.kv == DType::kF32   ? "attention_simt_f32_sm75"
                  : shape.kv == DType::kF16 ? "attention_simt_f16_sm75"
                                            : "attention_simt_bf16_sm75";
  choice.rows = 1;
  choice.threads = 32 * kAttentionWarps;
  choice.shared_bytes = 4 * (shape.k_dim + kAttentionWarps * (shape.v_dim + 2));
  if (choice.shared_bytes > caps.smem_optin) return refuse("a head does not fit this part's shared memory");
  return choice;
}

// --- the split of keys
// ------------------------------------------------------------------------------------------------

constexpr int kInvariantSegment = 256;
constexpr int kSmallestSegment = 64;

/// Segments that a row at `position` needs: borders are multiples of `segment`.
constexpr int attention_segments(int position, int window, int segment) {
  if (position < 0) return 0;
  const int first = window > 0 && position - window + 1 > 0 ? position - window + 1 : 0;
  return position / segment - first / segment + 1;
}

/// Columns of work a segment has: one a kv head and 8 of its query heads.
constexpr int attention_columns(const AttentionCudaShape& shape) {
  return shape.kv_heads * ((shape.heads / shape.kv_heads + 7) / 8);
}

/// Segments of all rows that decode's blocks work on at the same time: one wave.
constexpr int attention_wave(const DeviceCaps& caps, const AttentionCudaShape& shape) {
  const int blocks = caps.sms * attention_plan::kDecodeBlocks[attention_plan::width_index(shape.k_dim)];
  return blocks / attention_columns(shape);
}

/// Most segments that plan_attention_segment leads to for `rows` rows: one wave, or where the rows alone come near one,
/// three, so that neither a long row among short ones nor the rest of a wave is left to a few blocks.
constexpr int attention_most_segments(const DeviceCaps& caps, const AttentionCudaShape& shape, int rows, int context,
                                      bool invariant) {
  if (invariant) return rows * (context / kInvariantSegment + 2);
  const int wave = attention_wave(caps, shape);
  if (wave >= 2 * rows) return wave;
  return 3 * wave > rows ? 3 * wave : rows;
}

/// Tokens of a segment: the smallest multiple of 64 (from 2,048 on in steps of about 3 %) that leads to no more
/// segments than attention_most_segments. Pinned under batch invariance. positions: [rows], −1 = no row.
constexpr int plan_attention_segment(const DeviceCaps& caps, const AttentionCudaShape& shape, const int* positions,
                                     int rows, int window, bool invariant) {
  if (invariant) return kInvariantSegment;
  const int most = attention_most_segments(caps, shape, rows, 0, false);
  const int wave = attention_wave(caps, shape);
  int longest = 0;
  int64_t tokens = 0;
  for (int r = 0; r < rows; ++r) {
    if (positions[r] > longest) longest = positions[r];
    tokens += window > 0 && positions[r] >= window ? window : positions[r] + 1;
  }
  // Shorter ones cannot fit: that many keys would need more segments.
  int segment = most > 0 ? static_cast<int>(tokens / most) / 64 * 64 : (longest / 64 + 1) * 64;
  if (segment < kSmallestSegment) segment = kSmallestSegment;
  while (segment <= longest) {
    int64_t segments = 0;
    for (int r = 0; r < rows; ++r) segments += attention_segments(positions[r], window, segment);
    // At 128 dims, 256 tokens and a wave all but full, some places left free gain more, since the merge and the next
    // kernel begin there, than longer segments cost: 15.5 → 14.5 us on an H200; at 384 tokens or 64 dims they do not.
    const bool crowded = segment == 256 && shape.k_dim == 128 && most == wave && 10 * segments > 9 * wave;
    if (segments <= most && !crowded) break;
    const int step = segment / 32 / 64 * 64;
    segment += step > 64 ? step : 64;
  }
  return segment;
}

}  // namespace galvani::kernels
