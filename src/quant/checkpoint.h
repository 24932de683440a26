#pragma once
/// A model on disk, whatever its format, seen as a Hugging Face config plus tensors under Hugging Face names.
///
/// Accepted: a folder with config.json and safetensors (single file or sharded; Hugging Face or MLX), or a GGUF file
/// (v2, v3, split). GGUF metadata becomes a Hugging Face style config, its tensor names are mapped, llama's q/k rows
/// are un-permuted, so that a model family is written once. Every tensor handed out is remembered: `unused()` is what a
/// finished load must find empty.
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "quant/matrix_source.h"

namespace galvani::formats {
class GgufFile;
}

namespace galvani::quant {

enum class CheckpointFormat { kHuggingFace, kMlx, kGguf };

class Checkpoint {
 public:
  /// Opens a folder, a .gguf file or a synthetic model (synthetic_checkpoint.h). Reads headers and configs only;
  /// weights stay mapped.
  static Result<std::shared_ptr<Checkpoint>> open(const std::filesystem::path& path);
  virtual ~Checkpoint() = default;

  virtual CheckpointFormat format() const = 0;
  /// The language model's config: text_config merged with the top level (models.md 1.1); from GGUF metadata for GGUF.
  virtual const nlohmann::json& config() const = 0;
  /// End-of-sequence ids: generation_config.json over config.json, or the GGUF's eos/eot/eom.
  virtual const std::vector<int32_t>& eos_ids() const = 0;
  /// Sampling defaults and suppress_tokens of generation_config.json; an empty object where there is none.
  virtual const nlohmann::json& generation_config() const = 0;
  /// True when norm weights that the family defines as 1+w are stored with the 1 already added (GGUF gemma3; MLX
  /// delta-net).
  virtual bool norms_folded() const = 0;
  /// Random weights: its rates mean something, its output nothing.
  virtual bool synthetic() const { return false; }
  /// The file or folder that was opened, for messages.
  virtual const std::filesystem::path& path() const = 0;
  /// The GGUF behind this checkpoint, for its tokenizer; null for folders.
  virtual const formats::GgufFile* gguf() const { return nullptr; }

  /// Is there a tensor `name` (full name, e.g. "lm_head.weight")? Does not count as a use.
  virtual bool has(const std::string& name) const = 0;
  /// The matrix of module `module` ("model.layers.0.self_attn.q_proj": its .weight, and .scales/.biases when
  /// quantised), which must be [rows, cols] ([E, R, C] counts as [E·R, C]). Errors name file, tensor, shape and what
  /// was expected. Per-module quantisation overrides are honoured; where config and shapes disagree the shapes win and
  /// a warning is logged (models.md 1.5).
  virtual Result<MatrixPtr> matrix(const std::string& module, int64_t rows, int64_t cols) = 0;
  /// A float tensor of any shape by its full name, as f32; must hold `count` elements.
  virtual Result<std::vector<float>> vector(const std::string& name, int64_t count) = 0;
  /// Shape of a tensor by its full name.
  virtual Result<Shape> shape(const std::string& name) const = 0;
  /// Accept these tensors without using them (vision towers, mtp, rotary buffers): `prefix` of the full name.
  virtual void ignore_prefix(const std::string& prefix) = 0;
  /// Every tensor, ignorable ones too; sorted.
  virtual std::vector<std::string> names() const = 0;
  /// Tensors nobody asked for, ignorable ones left out; sorted.
  virtual std::vector<std::string> unused() const = 0;
};

}  // namespace galvani::quant
