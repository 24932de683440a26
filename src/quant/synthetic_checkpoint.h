#pragma once
/// A model of a real configuration with random weights: "synthetic:BITS:CONFIG", where CONFIG is a config.json or a
/// folder that holds one. For timing shapes whose files are not at hand: its output means nothing, and whatever reports
/// on it says so. Matrices are affine of BITS bits in groups of 64 with bf16 scales, of about unit gain; biases are
/// zeros, other vectors ones. Nothing is stored: a weight is a function of its matrix's name, row and column, the same
/// on the CPU, on a GPU and in what save_synthetic writes.
#include <functional>
#include <map>

#include "formats/hf_config.h"
#include "quant/checkpoint.h"

namespace galvani::quant {

constexpr const char* kSyntheticPrefix = "synthetic:";
/// Key of the metadata in files of save_synthetic, so that they are still called synthetic when they are loaded.
constexpr const char* kSyntheticKey = "galvani_synthetic";

/// Every element of a vector of this name: biases are 0, everything else (norms) is 1.
inline float synthetic_value(const std::string& name) { return name.ends_with(".bias") ? 0.0f : 1.0f; }

/// The folder that a synthetic model's config stands in; nothing for other names.
std::optional<std::filesystem::path> synthetic_folder(const std::string& model);

class SyntheticCheckpoint final : public Checkpoint {
 public:
  /// `name` with its prefix. Errors: kInvalidArgument for a name not written so; what reading config.json reports.
  static Result<std::shared_ptr<SyntheticCheckpoint>> open(const std::string& name);

  CheckpointFormat format() const override { return CheckpointFormat::kMlx; }
  const nlohmann::json& config() const override { return config_.config; }
  const std::vector<int32_t>& eos_ids() const override { return config_.eos_ids; }
  const nlohmann::json& generation_config() const override { return config_.generation; }
  bool norms_folded() const override { return false; }
  bool synthetic() const override { return true; }
  const std::filesystem::path& path() const override { return path_; }
  bool has(const std::string&) const override { return false; }
  Result<MatrixPtr> matrix(const std::string& module, int64_t rows, int64_t cols) override;
  Result<std::vector<float>> vector(const std::string& name, int64_t count) override;
  Result<Shape> shape(const std::string& name) const override;
  void ignore_prefix(const std::string&) override {}
  std::vector<std::string> names() const override { return {}; }
  std::vector<std::string> unused() const override { return {}; }

  int bits() const { return bits_; }
  /// The config that the shapes come from; it may have any name.
  const std::filesystem::path& config_file() const { return config_file_; }
  /// What a model has asked for so far, by module and by full name.
  const std::map<std::string, MatrixPtr>& matrices() const { return matrices_; }
  const std::map<std::string, int64_t>& vectors() const { return vectors_; }

 private:
  std::filesystem::path path_, config_file_;
  int bits_ = 4;
  formats::HfConfig config_;
  std::map<std::string, MatrixPtr> matrices_;
  std::map<std::string, int64_t> vectors_;
};

struct SyntheticSave {
  std::filesystem::path folder;              ///< must not exist
  std::map<std::string, std::string> files;  ///< further small files, name → content
  int64_t shard_bytes = int64_t{4} << 30;
  std::function<void(double)> progress = {};  ///< share done, 0…1
  std::function<bool()> stop = {};            ///< asked between blocks; true ends with kCancelled
};

/// Writes what a model has asked of `checkpoint` as an MLX-layout folder that loads back to the same weights, with its
/// config.json and what else of tokenizer and generation files stands beside it. The folder appears complete or not at
/// all. Returns the bytes of its tensors. Errors: a folder that exists, what the system says (kIo), kCancelled.
Result<int64_t> save_synthetic(const SyntheticCheckpoint& checkpoint, const SyntheticSave& save);

}  // namespace galvani::quant
