/// GGUF files as checkpoints under Hugging Face names.
#include <cmath>
#include <cstdlib>
#include <map>

#include "core/error.h"
#include "formats/gguf_config.h"
#include "formats/gguf_names.h"
#include "formats/quoted.h"
#include "quant/checkpoint_base.h"
#include "quant/gguf_blocks.h"
#include "quant/sources.h"

namespace galvani::quant {
namespace {

using formats::GgufTensor;
using formats::quote;

class GgufCheckpoint final : public Checkpoint {
 public:
  Status open(const std::filesystem::path& path) {
    path_ = path;
    GALVANI_TRY(file_, formats::GgufFile::open(path));
    GALVANI_TRY(config_, formats::read_gguf_config(*file_));
    for (const auto& tensor : file_->tensors()) {
      const auto [it, added] = tensors_.emplace(name_of(tensor.name), &tensor);
      if (!added)
        return fail(ErrorCode::kCorrupt, "{}: tensors {} and {} mean the same thing", path.string(),
                    quote(it->second->name), quote(tensor.name));
    }
    return {};
  }

  CheckpointFormat format() const override { return CheckpointFormat::kGguf; }
  const nlohmann::json& config() const override { return config_.hf.config; }
  const std::vector<int32_t>& eos_ids() const override { return config_.hf.eos_ids; }
  const nlohmann::json& generation_config() const override { return config_.hf.generation; }
  bool norms_folded() const override { return config_.norms_folded; }
  const std::filesystem::path& path() const override { return path_; }
  const formats::GgufFile* gguf() const override { return file_.get(); }

  bool has(const std::string& name) const override { return tensors_.contains(name); }
  void ignore_prefix(const std::string& prefix) override { use_.ignore_prefix(prefix); }
  std::vector<std::string> names() const override {
    std::vector<std::string> result;
    for (const auto& [name, tensor] : tensors_) result.push_back(name);
    return result;
  }
  std::vector<std::string> unused() const override {
    std::vector<std::string> result;
    for (const auto& [name, tensor] : tensors_)
      if (use_.idle(name)) result.push_back(name);
    return result;
  }

  Result<Shape> shape(const std::string& name) const override {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) return missing(name);
    return it->second->shape;
  }

  Result<MatrixPtr> matrix(const std::string& module, int64_t rows, int64_t cols) override {
    if (rows < 1 || cols < 1)
      return fail(ErrorCode::kInvalidArgument, "{}: a matrix of [{}, {}] was asked for", module, rows, cols);
    auto it = tensors_.find(module + ".weight");
    if (it == tensors_.end()) it = tensors_.find(module);
    if (it == tensors_.end()) return missing(module + ".weight");
    const GgufTensor& tensor = *it->second;
    int64_t leading = 1;  // cannot overflow: the product of all dimensions was checked
    for (int i = 0; i + 1 < tensor.shape.rank(); ++i) leading *= tensor.shape[i];
    if (leading != rows || tensor.shape[tensor.shape.rank() - 1] != cols)
      return mismatch(tensor, fmt::format("[{}, {}]", rows, cols));
    use_.use(it->first);
    auto made = make_gguf_source(module, tensor.type, bytes_of(tensor), rows, cols, {interleaved_head(module)});
    if (!made) return wrap(std::move(made).error(), path_.string());
    return made;
  }

  Result<std::vector<float>> vector(const std::string& name, int64_t count) override {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) return missing(name);
    const GgufTensor& tensor = *it->second;
    GALVANI_TRY(const int64_t elements, tensor.shape.elements());
    if (elements != count) return mismatch(tensor, fmt::format("{} elements", count));
    const auto bytes = bytes_of(tensor);
    GALVANI_TRY_VOID(bytes.check());
    use_.use(name);
    std::vector<float> values(static_cast<size_t>(count));
    decode_blocks(tensor.type, bytes.bytes.data(), count / formats::ggml_type_info(tensor.type).block, values.data());
    if (name.ends_with(".linear_attn.A_log")) GALVANI_TRY_VOID(undo_decay(tensor, values));
    const RowMap map{interleaved_head(name.substr(0, name.rfind('.')))};
    if (map.in_order() || tensor.shape.rank() != 1) return values;
    if (count % map.head_dim != 0) return mismatch(tensor, fmt::format("whole heads of {}", map.head_dim));
    std::vector<float> ordered(values.size());
    for (int64_t i = 0; i < count; ++i) ordered[static_cast<size_t>(i)] = values[static_cast<size_t>(map.file_row(i))];
    return ordered;
  }

 private:
  /// Its Hugging Face name. Blocks after the model's own predict further tokens (models.md 7.2): they are called
  /// "mtp.…" as Hugging Face calls them, and so left alone.
  std::string name_of(const std::string& gguf) const {
    const auto layers = config_.hf.config.find("num_hidden_layers");
    if (gguf.starts_with("blk.") && layers != config_.hf.config.end()) {
      const int64_t block = std::strtoll(gguf.c_str() + 4, nullptr, 10);
      if (config_.predicts_ahead && block >= layers->get<int64_t>()) return "mtp." + gguf;
    }
    return formats::hf_name_of_gguf(config_.architecture, gguf).value_or(gguf);
  }

  /// GGUF holds −e^A_log.
  Status undo_decay(const GgufTensor& tensor, std::vector<float>& values) const {
    for (float& value : values) {
      if (!(value < 0) || !std::isfinite(value))
        return fail(ErrorCode::kCorrupt, "{}: tensor {} holds {}; it must hold negative numbers", path_.string(),
                    quote(tensor.name), value);
      value = static_cast<float>(std::log(-static_cast<double>(value)));
    }
    return {};
  }

  MappedBytes bytes_of(const GgufTensor& tensor) const { return {file_->bytes(tensor), file_->map(tensor)}; }

  /// Head dimension where the rows of this module's tensors stand interleaved, else 0 (models.md 7.5).
  int64_t interleaved_head(const std::string& module) const {
    const bool rotated = module.ends_with(".self_attn.q_proj") || module.ends_with(".self_attn.k_proj");
    return rotated ? config_.interleaved_head : 0;
  }

  tl::unexpected<Error> missing(const std::string& name) const {
    const auto own = formats::gguf_name_of_hf(config_.architecture, name);
    return fail(ErrorCode::kNotFound, "{} has no tensor {}", path_.string(),
                own ? quote(*own) + " (" + name + ")" : quote(name));
  }
  tl::unexpected<Error> mismatch(const GgufTensor& tensor, const std::string& expected) const {
    return fail(ErrorCode::kCorrupt, "{}: tensor {} is {} {}; expected {}", path_.string(), quote(tensor.name),
                formats::ggml_type_info(tensor.type).name, tensor.shape.str(), expected);
  }

  std::filesystem::path path_;
  std::shared_ptr<const formats::GgufFile> file_;
  formats::GgufConfig config_;
  std::map<std::string, const GgufTensor*> tensors_;
  TensorUse use_;
};

}  // namespace

Result<std::shared_ptr<Checkpoint>> open_gguf_checkpoint(const std::filesystem::path& file) {
  auto checkpoint = std::make_shared<GgufCheckpoint>();
  GALVANI_TRY_VOID(checkpoint->open(file));
  return checkpoint;
}

}  // namespace galvani::quant
