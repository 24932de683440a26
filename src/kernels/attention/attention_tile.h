#pragma once
/// The CPU arm's unit of work, private to this folder: some consecutive positions of one sequence × one kv head.
#include <cstdint>
#include <vector>

#include "kernels/attention/attention.h"

namespace galvani::kernels {

/// Borders, in absolute positions, at which a row's running sums are closed and merged into its total. Part of the
/// arithmetic: both arms honour it, so that cutting the keys between threads changes no bit.
constexpr int kSegmentPages = 4;
constexpr int kSegmentTokens = kSegmentPages * kPageTokens;
/// Rows of one register block; scratch is padded to whole blocks of 64 bytes.
constexpr int kBlockRows = 6;

/// `count` positions from first_position. Tile row t = i · group + g is query head kv_head · group + g at position
/// first_position + i, with group = heads / kv_heads.
struct AttentionTile {
  const int32_t* blocks = nullptr;
  int kv_head = 0;
  int32_t first_position = 0, count = 0;
  int64_t row = 0;  ///< row of q and out of the first position
};

/// What every tile of a call has in common.
struct AttentionCall {
  const KvLayer* layer = nullptr;
  const AttentionParams* params = nullptr;
  const float* q = nullptr;
  float* out = nullptr;
  int64_t q_stride = 0, out_stride = 0;
  int group = 1;

  int32_t first_visible(int32_t position) const {
    const int window = params->window;
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
  int first_segment(const AttentionTile& tile) const { return first_visible(tile.first_position) / kSegmentTokens; }
  int last_segment(const AttentionTile& tile) const { return (tile.first_position + tile.count - 1) / kSegmentTokens; }
  /// Elements of an accumulator row, v_dim in whole 64 bytes.
  int64_t padded_v() const { return (layer->v_dim + 15) / 16 * 16; }
};

/// Per row of a tile, with scores in units of log 2: the largest, Σ 2^(score − peak), Σ 2^(score − peak) · V.
struct AttentionSums {
  float* peak = nullptr;  ///< [rows]
  float* sum = nullptr;   ///< [rows]
  float* acc = nullptr;   ///< [rows, padded_v]
};

/// A thread's working memory; grows and stays.
class AttentionScratch {
 public:
  /// Sizes everything for tiles of up to `rows` rows.
  void reserve(const AttentionCall& call, int64_t rows);

  float* q = nullptr;          ///< [rows, k_dim], scale / log 2 multiplied in
  float* k_columns = nullptr;  ///< [k_dim, 64]
  float* v_rows = nullptr;     ///< [64, padded_v] f32, unless V already is and needs no padding
  float* scores = nullptr;     ///< [kBlockRows, 64]
  AttentionSums segment, total;

 private:
  std::vector<float> memory_;
};

/// All segments of a tile, result written to call.out.
void attention_tile(const AttentionCall& call, const AttentionTile& tile, AttentionScratch& scratch);
/// One segment of a tile, into `sums`; rows that do not see it get zeros.
void attention_tile_segment(const AttentionCall& call, const AttentionTile& tile, int segment,
                            AttentionScratch& scratch, const AttentionSums& sums);
/// Merges a tile's segments, parts[s] for first_segment + s, in order, and writes the result to call.out.
void attention_tile_merge(const AttentionCall& call, const AttentionTile& tile, const AttentionSums* parts,
                          AttentionScratch& scratch);
/// count f32 values to dtype (nearest even) at target.
void attention_store(std::byte* target, DType dtype, const float* source, int64_t count);

}  // namespace galvani::kernels
