/// A model of a real configuration with random weights: "synthetic:BITS:FOLDER", where FOLDER holds a config.json and
/// no weights are read. For timing shapes whose files are not at hand; its output means nothing, and whatever reports
/// it says so. Matrices are affine of BITS bits in groups of 64 with bf16 scales, of about unit gain; vectors are ones.
#include <charconv>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/parallel.h"
#include "formats/hf_config.h"
#include "quant/checkpoint_base.h"

namespace galvani::quant {
namespace {

constexpr int kGroup = 64;

/// A step of splitmix64 (Steele, Lea and Flood 2014).
uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

class SyntheticMatrix final : public MatrixSource {
 public:
  SyntheticMatrix(std::string name, int64_t rows, int64_t cols, int bits) {
    seed_ = std::hash<std::string>{}(name);
    name_ = std::move(name);
    format_ = "synthetic " + std::to_string(bits) + "-bit g64";
    rows_ = rows, cols_ = cols, bits_ = bits, group_ = kGroup;
    kind_ = MatrixKind::kAffine;
    dtype_ = DType::kBF16;
    file_bytes_ = rows * (cols * bits / 8 + cols / kGroup * 4);
    // Codes are uniform: with a = √(3 / cols) on either side of 0 a row's product has unit variance.
    const float a = std::sqrt(3.0f / static_cast<float>(cols));
    scale_ = f32_to_bf16(2 * a / static_cast<float>((1 << bits) - 1));
    bias_ = f32_to_bf16(-a);
  }
  Result<AffineTensor> affine(int64_t r0, int64_t r1, int64_t c0, int64_t c1) const override {
    GALVANI_TRY_VOID(check_block(r0, r1, c0, c1));
    AffineTensor tensor = make_affine_tensor(r1 - r0, c1 - c0, bits_, kGroup, DType::kBF16);
    const AffineView& view = tensor.view;
    const int64_t row_bytes = view.row_code_bytes(), groups = view.groups();
    const auto writable = [&tensor](const std::byte* p) { return tensor.storage.data() + (p - tensor.storage.data()); };
    std::byte *codes = writable(view.codes), *scales = writable(view.scales), *biases = writable(view.biases);
    for (int64_t r = r0; r < r1; ++r) {
      std::byte* row = codes + (r - r0) * row_bytes;
      // Words are numbered from the row's first column, so that a block holds what the whole row holds there.
      const int64_t first = c0 * bits_ / 32;
      for (int64_t w = 0; w < row_bytes / 4; ++w) {
        const auto word =
            static_cast<uint32_t>(mix(seed_ ^ (static_cast<uint64_t>(r) << 24 ^ static_cast<uint64_t>(first + w))));
        std::memcpy(row + 4 * w, &word, 4);
      }
      for (int64_t g = 0; g < groups; ++g) {
        std::memcpy(scales + ((r - r0) * groups + g) * 2, &scale_, 2);
        std::memcpy(biases + ((r - r0) * groups + g) * 2, &bias_, 2);
      }
    }
    return tensor;
  }
  Status dequant_rows(int64_t r0, int64_t r1, float* out) const override {
    GALVANI_TRY(const AffineTensor tensor, affine(r0, r1, 0, cols_));
    affine_dequant_rows(tensor.view, 0, r1 - r0, out);
    return {};
  }

 private:
  uint64_t seed_ = 0;
  uint16_t scale_ = 0, bias_ = 0;
};

class SyntheticCheckpoint final : public Checkpoint {
 public:
  Status open(int bits, const std::filesystem::path& folder) {
    path_ = folder;
    bits_ = bits;
    GALVANI_TRY(config_, formats::read_hf_config(folder));
    return {};
  }
  CheckpointFormat format() const override { return CheckpointFormat::kMlx; }
  const nlohmann::json& config() const override { return config_.config; }
  const std::vector<int32_t>& eos_ids() const override { return config_.eos_ids; }
  const nlohmann::json& generation_config() const override { return config_.generation; }
  bool norms_folded() const override { return false; }
  const std::filesystem::path& path() const override { return path_; }
  bool has(const std::string&) const override { return false; }
  Result<MatrixPtr> matrix(const std::string& module, int64_t rows, int64_t cols) override {
    if (cols % kGroup != 0)
      return fail(ErrorCode::kUnsupported, "synthetic {}: {} columns are no multiple of {}", module, cols, kGroup);
    return std::make_shared<const SyntheticMatrix>(module, rows, cols, bits_);
  }
  Result<std::vector<float>> vector(const std::string& name, int64_t count) override {
    // Biases are small, everything else (norms) is 1.
    return std::vector<float>(static_cast<size_t>(count), name.ends_with(".bias") ? 0.0f : 1.0f);
  }
  Result<Shape> shape(const std::string& name) const override {
    return fail(ErrorCode::kNotFound, "synthetic weights have no tensor {}", name);
  }
  void ignore_prefix(const std::string&) override {}
  std::vector<std::string> names() const override { return {}; }
  std::vector<std::string> unused() const override { return {}; }

 private:
  std::filesystem::path path_;
  int bits_ = 4;
  formats::HfConfig config_;
};

}  // namespace

Result<std::shared_ptr<Checkpoint>> open_synthetic_checkpoint(const std::string& what) {
  const std::string rest = what.substr(std::string_view("synthetic:").size());
  int bits = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), bits);
  const bool known = bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8;
  if (error != std::errc() || end == rest.data() + rest.size() || *end != ':' || !known)
    return fail(ErrorCode::kInvalidArgument, "{}: write it as synthetic:BITS:FOLDER with 2, 3, 4, 5, 6 or 8 bits",
                what);
  auto checkpoint = std::make_shared<SyntheticCheckpoint>();
  GALVANI_TRY_VOID(checkpoint->open(bits, std::string(end + 1, rest.data() + rest.size())));
  return std::shared_ptr<Checkpoint>(std::move(checkpoint));
}

}  // namespace galvani::quant
