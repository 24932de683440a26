#include "quant/synthetic_checkpoint.h"

#include <charconv>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/parallel.h"

namespace galvani::quant {
namespace {

constexpr int kGroup = 64;

/// Of a name; equal on every machine.
uint64_t seed_of(const std::string& name) {
  uint64_t seed = 0;
  for (const char letter : name) seed = synthetic_mix(seed ^ static_cast<unsigned char>(letter));
  return seed;
}

class SyntheticMatrix final : public MatrixSource {
 public:
  SyntheticMatrix(std::string name, int64_t rows, int64_t cols, int bits) {
    words_.seed = seed_of(name);
    name_ = std::move(name);
    format_ = "synthetic " + std::to_string(bits) + "-bit g64";
    rows_ = rows, cols_ = cols, bits_ = bits, group_ = kGroup;
    kind_ = MatrixKind::kAffine;
    dtype_ = DType::kBF16;
    file_bytes_ = rows * (cols * bits / 8 + cols / kGroup * 4);
    // Codes are uniform: with a = √(3 / cols) on either side of 0 a row's product has unit variance.
    const float a = std::sqrt(3.0f / static_cast<float>(cols));
    words_.scale = f32_to_bf16(2 * a / static_cast<float>((1 << bits) - 1));
    words_.bias = f32_to_bf16(-a);
  }
  Result<AffineTensor> affine(int64_t r0, int64_t r1, int64_t c0, int64_t c1) const override {
    GALVANI_TRY_VOID(check_block(r0, r1, c0, c1));
    AffineTensor tensor = make_affine_tensor(r1 - r0, c1 - c0, bits_, kGroup, DType::kBF16);
    const AffineView& view = tensor.view;
    const int64_t row_bytes = view.row_code_bytes(), groups = view.groups();
    const auto writable = [&tensor](const std::byte* p) { return tensor.storage.data() + (p - tensor.storage.data()); };
    std::byte *codes = writable(view.codes), *scales = writable(view.scales), *biases = writable(view.biases);
    const int64_t first = c0 * bits_ / 32;
    parallel_for(r1 - r0, 16, [&](int64_t begin, int64_t end, int) {
      for (int64_t r = begin; r < end; ++r) {
        std::byte* row = codes + r * row_bytes;
        for (int64_t w = 0; w < row_bytes / 4; ++w) {
          const uint32_t word = synthetic_word(words_.seed, r0 + r, first + w);
          std::memcpy(row + 4 * w, &word, 4);
        }
        for (int64_t g = 0; g < groups; ++g) {
          std::memcpy(scales + (r * groups + g) * 2, &words_.scale, 2);
          std::memcpy(biases + (r * groups + g) * 2, &words_.bias, 2);
        }
      }
    });
    return tensor;
  }
  Status dequant_rows(int64_t r0, int64_t r1, float* out) const override {
    GALVANI_TRY(const AffineTensor tensor, affine(r0, r1, 0, cols_));
    affine_dequant_rows(tensor.view, 0, r1 - r0, out);
    return {};
  }

  const SyntheticWords* synthetic() const override { return &words_; }

 private:
  SyntheticWords words_;
};

/// BITS and CONFIG of a name; bits 0 when it is not written so.
struct Name {
  int bits = 0;
  std::string config;
};
Name parse(const std::string& name) {
  Name parsed;
  if (!name.starts_with(kSyntheticPrefix)) return parsed;
  const std::string rest = name.substr(std::string_view(kSyntheticPrefix).size());
  int bits = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), bits);
  const bool known = bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 || bits == 8;
  if (error != std::errc() || end == rest.data() + rest.size() || *end != ':' || !known) return parsed;
  return {bits, std::string(end + 1, rest.data() + rest.size())};
}

std::filesystem::path folder_of(const std::string& config) {
  const std::filesystem::path path = config;
  if (!formats::is_hf_config_file(path)) return path;
  return path.has_parent_path() ? path.parent_path() : std::filesystem::path(".");
}

}  // namespace

std::optional<std::filesystem::path> synthetic_folder(const std::string& model) {
  const Name name = parse(model);
  if (name.bits == 0) return std::nullopt;
  return folder_of(name.config);
}

Result<std::shared_ptr<SyntheticCheckpoint>> SyntheticCheckpoint::open(const std::string& name) {
  const Name parsed = parse(name);
  if (parsed.bits == 0)
    return fail(ErrorCode::kInvalidArgument,
                "{}: write it as synthetic:BITS:CONFIG with 2, 3, 4, 5, 6 or 8 bits and a config.json or its folder",
                name);
  auto checkpoint = std::make_shared<SyntheticCheckpoint>();
  checkpoint->path_ = folder_of(parsed.config);
  checkpoint->config_file_ = formats::is_hf_config_file(parsed.config) ? std::filesystem::path(parsed.config)
                                                                       : checkpoint->path_ / "config.json";
  checkpoint->bits_ = parsed.bits;
  GALVANI_TRY(checkpoint->config_, formats::read_hf_config(parsed.config));
  // Their stacks and convolutions have shapes that no request names (MatrixSource of an expert, conv1d).
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts", "linear_num_value_heads"})
    if (const auto found = checkpoint->config_.config.find(key);
        found != checkpoint->config_.config.end() && found->is_number() && *found > 0)
      return fail(
          ErrorCode::kUnsupported,
          "{}: {} is {}; random weights are made for dense families (llama, qwen2, qwen3, gemma3, gemma4), not for "
          "experts and recurrent layers",
          parsed.config, key, found->dump());
  return checkpoint;
}

Result<MatrixPtr> SyntheticCheckpoint::matrix(const std::string& module, int64_t rows, int64_t cols) {
  if (rows < 1 || cols < 1)
    return fail(ErrorCode::kInvalidArgument, "{}: a matrix of [{}, {}] was asked for", module, rows, cols);
  if (cols % kGroup != 0)
    return fail(ErrorCode::kUnsupported, "synthetic {}: {} columns are no multiple of {}", module, cols, kGroup);
  auto matrix = std::make_shared<const SyntheticMatrix>(module, rows, cols, bits_);
  matrices_[module] = matrix;
  return matrix;
}

Result<std::vector<float>> SyntheticCheckpoint::vector(const std::string& name, int64_t count) {
  vectors_[name] = count;
  return std::vector<float>(static_cast<size_t>(count), synthetic_value(name));
}

Result<Shape> SyntheticCheckpoint::shape(const std::string& name) const {
  return fail(ErrorCode::kNotFound, "synthetic weights have no tensor {}", name);
}

}  // namespace galvani::quant
