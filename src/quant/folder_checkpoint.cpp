/// Hugging Face and MLX folders.
#include <algorithm>

#include "core/error.h"
#include "core/log.h"
#include "formats/hf_config.h"
#include "formats/quoted.h"
#include "formats/safetensors.h"
#include "quant/checkpoint_base.h"
#include "quant/float_bytes.h"
#include "quant/mlx_quantization.h"
#include "quant/sources.h"
#include "quant/synthetic_checkpoint.h"

namespace galvani::quant {
namespace {

using formats::quote;
using Tensor = formats::SafetensorsSet::Tensor;

MappedBytes bytes_of(const Tensor& tensor) { return {tensor.file->view(*tensor.entry).bytes, tensor.file->map()}; }

/// Product of all dimensions but the last. The file's header was checked: no overflow.
int64_t leading(const Shape& shape) {
  int64_t product = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) product *= shape[i];
  return product;
}
int64_t last(const Shape& shape) { return shape.rank() == 0 ? 1 : shape[shape.rank() - 1]; }

class FolderCheckpoint final : public Checkpoint {
 public:
  Status open(const std::filesystem::path& folder) {
    path_ = folder;
    GALVANI_TRY(config_, formats::read_hf_config(folder));
    GALVANI_TRY(quantization_, parse_mlx_quantization(config_.config, (folder / "config.json").string()));
    GALVANI_TRY(files_, formats::SafetensorsSet::open(folder));
    bool mlx = quantization_.base.has_value();
    for (const auto& file : files_.files()) {
      const auto it = file->metadata().find("format");
      synthetic_ = synthetic_ || file->metadata().contains(kSyntheticKey);
      mlx = mlx || (it != file->metadata().end() && it->second == "mlx");
    }
    format_ = mlx ? CheckpointFormat::kMlx : CheckpointFormat::kHuggingFace;
    for (const auto& [name, tensor] : files_.tensors()) {
      const auto [it, added] = tensors_.emplace(canonical_name(name), tensor);
      if (!added)
        return fail(ErrorCode::kCorrupt, "{}: tensors {} and {} mean the same thing", folder.string(), quote(name),
                    quote(it->second.entry->name));
    }
    detect_folded_norms();
    return {};
  }

  CheckpointFormat format() const override { return format_; }
  const nlohmann::json& config() const override { return config_.config; }
  const std::vector<int32_t>& eos_ids() const override { return config_.eos_ids; }
  const nlohmann::json& generation_config() const override { return config_.generation; }
  bool norms_folded() const override { return norms_folded_; }
  bool synthetic() const override { return synthetic_; }
  const std::filesystem::path& path() const override { return path_; }

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
    return it->second.entry->shape;
  }

  Result<std::vector<float>> vector(const std::string& name, int64_t count) override {
    const auto it = tensors_.find(name);
    if (it == tensors_.end()) return missing(name);
    const auto view = it->second.file->view(*it->second.entry);
    GALVANI_TRY(const int64_t elements, view.shape.elements());
    if (!is_float(view.dtype) || elements != count)
      return fail(ErrorCode::kCorrupt, "{}: tensor {} is {} {}; expected {} elements of f32, f16 or bf16",
                  it->second.file->label(), quote(name), dtype_name(view.dtype), view.shape.str(), count);
    GALVANI_TRY_VOID(it->second.file->check_not_truncated());
    use_.use(name);
    std::vector<float> out(static_cast<size_t>(count));
    load_floats(view.dtype, view.bytes.data(), count, out.data());
    return out;
  }

  Result<MatrixPtr> matrix(const std::string& module, int64_t rows, int64_t cols) override {
    if (rows < 1 || cols < 1)
      return fail(ErrorCode::kInvalidArgument, "{}: a matrix of [{}, {}] was asked for", module, rows, cols);
    auto it = tensors_.find(module + ".weight");
    if (it == tensors_.end()) it = tensors_.find(module);  // fused experts carry no suffix
    if (it == tensors_.end()) {
      it = tensors_.find(module + "_blocks");
      return it == tensors_.end() ? missing(module + ".weight") : mxfp4_blocks(module, it->second, rows, cols);
    }
    use_.use(it->first);
    const auto blocks = tensors_.find(module + ".weight_scale_inv");
    if (blocks != tensors_.end()) return block_scaled(module, it->second, *blocks, rows, cols);
    const auto scales = tensors_.find(module + ".scales");
    if (scales == tensors_.end()) return dense(module, it->second, rows, cols);
    use_.use(scales->first);
    const auto biases = tensors_.find(module + ".biases");
    if (biases == tensors_.end()) return floating(module, it->second, scales->second, rows, cols);
    use_.use(biases->first);
    return affine(module, it->second, scales->second, biases->second, rows, cols);
  }

 private:
  tl::unexpected<Error> missing(const std::string& name) const {
    return fail(ErrorCode::kNotFound, "{} has no tensor {}", path_.string(), quote(name));
  }

  tl::unexpected<Error> mismatch(const Tensor& tensor, const std::string& expected) const {
    return fail(ErrorCode::kCorrupt, "{}: tensor {} is {} {}; expected {}", tensor.file->label(),
                quote(tensor.entry->name), dtype_name(tensor.entry->dtype), tensor.entry->shape.str(), expected);
  }

  Result<MatrixPtr> dense(const std::string& module, const Tensor& weight, int64_t rows, int64_t cols) {
    const auto& shape = weight.entry->shape;
    if (shape.rank() == 0 || leading(shape) != rows || last(shape) != cols || !is_float(weight.entry->dtype))
      return mismatch(weight, fmt::format("f32, f16 or bf16 [{}, {}]", rows, cols));
    const auto* listed = quantization_.listed(module) ? quantization_.of(module) : nullptr;
    if (listed != nullptr && !listed->off)
      log_warn("{}: config.json says that {} is quantised, but it has no scales; read as {}", path_.string(), module,
               dtype_name(weight.entry->dtype));
    return make_dense_source(module, bytes_of(weight), weight.entry->dtype, rows, cols);
  }

  /// Warns where config.json and the shapes disagree; the shapes win.
  void compare(const std::string& module, const std::string& mode, int64_t bits, int64_t group) const {
    const auto* said = quantization_.of(module);
    if (said != nullptr && !said->off && said->mode == mode && said->bits == bits && said->group == group) return;
    const std::string config = said == nullptr ? "no quantization"
                               : said->off
                                   ? "not quantised"
                                   : fmt::format("{} {} bits, groups of {}", said->mode, said->bits, said->group);
    log_warn("{}: config.json says of {}: {}; its tensors are {} {} bits, groups of {}; going by the tensors",
             path_.string(), module, config, mode, bits, group);
  }

  /// Bits and group from the shapes of packed codes and scales, given the columns that the model expects.
  Result<std::pair<int64_t, int64_t>> derive(const Tensor& weight, const Tensor& scales, int64_t rows,
                                             int64_t cols) const {
    const auto& codes = weight.entry->shape;
    const auto& scale = scales.entry->shape;
    const int64_t words = last(codes), groups = last(scale);
    const bool whole =
        words > 0 && groups > 0 && words <= (int64_t{1} << 40) && words * 32 % cols == 0 && cols % groups == 0;
    if (weight.entry->dtype != DType::kU32 || codes.rank() == 0 || leading(codes) != rows || !whole)
      return mismatch(
          weight, fmt::format("packed u32 codes of a [{}, {}] matrix, whose scales are {}", rows, cols, scale.str()));
    if (scale.rank() == 0 || leading(scale) != rows)
      return mismatch(scales, fmt::format("scales of a [{}, {}] matrix", rows, cols));
    return std::pair{words * 32 / cols, cols / groups};
  }

  Result<MatrixPtr> affine(const std::string& module, const Tensor& weight, const Tensor& scales, const Tensor& biases,
                           int64_t rows, int64_t cols) {
    GALVANI_TRY(const auto derived, derive(weight, scales, rows, cols));
    const auto [bits, group] = derived;
    if (biases.entry->shape != scales.entry->shape || biases.entry->dtype != scales.entry->dtype)
      return mismatch(biases, fmt::format("the same as the scales, {} {}", dtype_name(scales.entry->dtype),
                                          scales.entry->shape.str()));
    if (bits > 8 || group > 128)
      return mismatch(
          weight, fmt::format("at most 8 bits and groups of at most 128 for [{}, {}]; the shapes say {} and {}", rows,
                              cols, bits, group));
    compare(module, "affine", bits, group);
    auto made = make_affine_source(module, bytes_of(weight), bytes_of(scales), bytes_of(biases), rows, cols,
                                   static_cast<int>(bits), static_cast<int>(group), scales.entry->dtype);
    if (!made) return wrap(std::move(made).error(), weight.file->label());
    return made;
  }

  Result<MatrixPtr> floating(const std::string& module, const Tensor& weight, const Tensor& scales, int64_t rows,
                             int64_t cols) {
    GALVANI_TRY(const auto derived, derive(weight, scales, rows, cols));
    const auto [bits, group] = derived;
    const auto kind = bits == 8 && group == 32   ? MatrixKind::kMxfp8
                      : bits == 4 && group == 32 ? MatrixKind::kMxfp4
                      : bits == 4 && group == 16 ? MatrixKind::kNvfp4
                                                 : MatrixKind::kDense;
    if (scales.entry->dtype != DType::kU8)
      return fail(
          ErrorCode::kCorrupt,
          "{}: {} has {} scales but no biases; affine quantization needs {}.biases, the float formats u8 scales",
          weight.file->label(), module, dtype_name(scales.entry->dtype), module);
    if (kind == MatrixKind::kDense)
      return mismatch(weight, fmt::format("mxfp4, mxfp8 or nvfp4 for [{}, {}]; the shapes say {} bits in groups of {}",
                                          rows, cols, bits, group));
    compare(module, matrix_kind_name(kind), bits, group);
    auto made = make_fp_source(module, kind, bytes_of(weight), bytes_of(scales), rows, cols);
    if (!made) return wrap(std::move(made).error(), weight.file->label());
    return made;
  }

  /// gpt-oss' own layout: u8 blocks [.., cols/32, 16] of 32 codes, low nibble first, and u8 scales [.., cols/32]
  /// (models.md 3.9). In bytes the same as mlx's mxfp4.
  Result<MatrixPtr> mxfp4_blocks(const std::string& module, const Tensor& blocks, int64_t rows, int64_t cols) {
    const auto found = tensors_.find(module + "_scales");
    if (found == tensors_.end()) return missing(module + "_scales");
    const Tensor& scales = found->second;
    use_.use(module + "_blocks");
    use_.use(module + "_scales");
    const auto& shape = blocks.entry->shape;
    const int64_t groups = cols / 32;
    if (cols % 32 != 0 || blocks.entry->dtype != DType::kU8 || shape.rank() < 2 || last(shape) != 16 ||
        leading(shape) != rows * groups)
      return mismatch(blocks, fmt::format("u8 mxfp4 blocks of 16 bytes for a [{}, {}] matrix", rows, cols));
    if (scales.entry->dtype != DType::kU8 || scales.entry->shape.rank() == 0 || last(scales.entry->shape) != groups ||
        leading(scales.entry->shape) != rows)
      return mismatch(scales, fmt::format("u8 scales, [{}, {}]", rows, groups));
    auto made = make_fp_source(module, MatrixKind::kMxfp4, bytes_of(blocks), bytes_of(scales), rows, cols);
    if (!made) return wrap(std::move(made).error(), blocks.file->label());
    return made;
  }

  /// fp8 codes with one f32 scale a block.
  Result<MatrixPtr> block_scaled(const std::string& module, const Tensor& weight,
                                 const std::pair<const std::string, Tensor>& scales, int64_t rows, int64_t cols) {
    use_.use(scales.first);
    const auto& shape = weight.entry->shape;
    if (weight.entry->dtype != DType::kF8E4M3 || shape.rank() != 2 || shape[0] != rows || shape[1] != cols)
      return mismatch(weight, fmt::format("f8_e4m3 [{}, {}], as it has a weight_scale_inv", rows, cols));
    const Shape wanted{(rows + kFp8Block - 1) / kFp8Block, (cols + kFp8Block - 1) / kFp8Block};
    if (scales.second.entry->dtype != DType::kF32 || scales.second.entry->shape != wanted)
      return mismatch(scales.second, fmt::format("f32 {}, one a block of {} x {}", wanted.str(), kFp8Block, kFp8Block));
    auto made = make_fp8_block_source(module, bytes_of(weight), bytes_of(scales.second), rows, cols);
    if (!made) return wrap(std::move(made).error(), weight.file->label());
    return made;
  }

  /// MLX conversions of delta-net models transpose conv1d to [C, K, 1] and add the 1 of 1+w to the norms
  /// (models.md 1.5).
  void detect_folded_norms() {
    for (const auto& [name, tensor] : tensors_) {
      const auto& shape = tensor.entry->shape;
      if (!name.ends_with("conv1d.weight") || shape.rank() != 3) continue;
      norms_folded_ = shape[2] == 1 && shape[1] != 1;
      log_info("{}: conv1d is {}, so norm weights are read as {}", path_.string(), shape.str(),
               norms_folded_ ? "1+w already added" : "w");
      return;
    }
  }

  std::filesystem::path path_;
  formats::HfConfig config_;
  MlxQuantization quantization_;
  formats::SafetensorsSet files_;
  std::map<std::string, Tensor> tensors_;
  TensorUse use_;
  CheckpointFormat format_ = CheckpointFormat::kHuggingFace;
  bool norms_folded_ = false, synthetic_ = false;
};

}  // namespace

Result<std::shared_ptr<Checkpoint>> open_folder_checkpoint(const std::filesystem::path& folder) {
  auto checkpoint = std::make_shared<FolderCheckpoint>();
  GALVANI_TRY_VOID(checkpoint->open(folder));
  return checkpoint;
}

}  // namespace galvani::quant
