#pragma once
/// One step's work: a ragged list of (sequence, first position, tokens), prefill chunks and decode tokens together.
#include <cstdint>
#include <span>
#include <vector>

namespace galvani::exec {

/// Handle of a sequence inside a State.
using SeqId = int32_t;

/// Consecutive tokens of one sequence; its rows in every activation are [row, row + count).
struct Chunk {
  SeqId sequence = -1;
  int32_t first_position = 0;
  int32_t count = 0;
  int64_t row = 0;
};

/// Which rows of a chunk the caller wants logits for.
enum class WantLogits { kNone, kLast, kAll };

struct Batch {
  std::vector<Chunk> chunks;
  std::vector<int32_t> tokens;      ///< one a row, chunk after chunk
  std::vector<int32_t> positions;   ///< one a row
  std::vector<int32_t> logit_rows;  ///< rows whose logits are wanted, ascending
  /// Copy the residual stream out as Hugging Face lists hidden states: the embedding output, the output of every layer
  /// but the last, and last the final norm's output.
  bool tap_hidden = false;

  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }

  void add(SeqId sequence, int32_t first_position, std::span<const int32_t> ids, WantLogits want) {
    const auto row = rows();
    const auto count = static_cast<int32_t>(ids.size());
    chunks.push_back({sequence, first_position, count, row});
    for (int32_t i = 0; i < count; ++i) {
      tokens.push_back(ids[static_cast<size_t>(i)]);
      positions.push_back(first_position + i);
      if (want == WantLogits::kAll || (want == WantLogits::kLast && i + 1 == count))
        logit_rows.push_back(static_cast<int32_t>(row) + i);
    }
  }
};

}  // namespace galvani::exec
