#pragma once
/// Writes a checkpoint in another format: an MLX-layout folder that mlx-lm and Galvani load.
///
/// The output appears complete or not at all. Work goes to `<out>.partial` beside it, shard by shard; each shard is
/// synced and renamed when it is whole, and recorded with a checksum. An interrupted run (kill -9 included) leaves that
/// folder; the same command goes on from there after checking the shards, and a different one is refused. Last, the
/// folder is renamed. Matrices are streamed in blocks of rows, so memory does not grow with the model.
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "quant/export_plan.h"

namespace galvani::quant {

struct QuantizeOptions {
  std::filesystem::path in, out;
  Recipe recipe;
  /// A shard is closed when it would pass this many bytes; a larger tensor gets a shard of its own.
  int64_t shard_bytes = int64_t{2} << 30;
  /// Where tokenizer files come from; empty: the input folder.
  std::filesystem::path tokenizer = {};
  std::function<void(double)> progress = {};  ///< share done, 0…1
  std::function<bool()> stop = {};            ///< asked between blocks; true ends the run with kCancelled
};

struct QuantizeReport {
  int64_t weights = 0, bytes = 0;           ///< elements of all tensors, bytes of all shards' data
  int shards = 0, shards_kept = 0;          ///< kept: finished by an earlier run
  std::map<std::string, int64_t> matrices;  ///< format → how many
  std::vector<std::string> left_out;        ///< tensors of the input with no place in the output
  std::vector<std::string> copied;          ///< tokenizer and generation files
};

/// Errors: input that cannot be read or planned, a weight that is NaN, infinite or beyond the output's type (named with
/// row and column), an output that exists, another run at work in the same place, what the system says (kIo).
Result<QuantizeReport> quantize_checkpoint(const QuantizeOptions& options);

}  // namespace galvani::quant
