// Experts in mxfp8 and nvfp4 and routers of every width, as `quantize` writes them: the logits are those of a twin that
// holds what the codes mean in f32, through products in f64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "models/checkpoint_edit.h"
#include "quant/checkpoint.h"
#include "quant/quantize.h"

namespace galvani::models {
namespace {

constexpr const char* kModel = "hf/qwen3_moe";  // 3 layers, the last two with 8 experts of 64, hidden 64

struct Case {
  const char* name;
  quant::MatrixKind experts;
  int bits, group;
  int router_bits;     ///< as --router-bits: 0 like the rest, 16 as it is
  const char* router;  ///< what its format is then called
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

EditedTensor f32(std::vector<int64_t> shape, const std::vector<float>& values) {
  EditedTensor tensor{DType::kF32, std::move(shape), std::vector<std::byte>(values.size() * sizeof(float))};
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return tensor;
}

class QuantizedExperts : public ::testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    const Case& c = GetParam();
    quant::QuantizeOptions options{.in = model_data(kModel), .out = folder_.path() / "out", .recipe = {}};
    options.recipe.base = {.kind = c.experts, .bits = c.bits, .group = c.group};
    options.recipe.router_bits = c.router_bits;
    const auto report = quant::quantize_checkpoint(options);
    ASSERT_TRUE(report.has_value()) << report.error().message;
    auto opened = quant::Checkpoint::open(options.out);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    quantized_ = *opened;
  }

  /// A module of the quantized checkpoint, as f32.
  std::vector<float> values_of(const std::string& module, int64_t rows, int64_t cols, quant::MatrixKind* kind = nullptr,
                               std::string* format = nullptr) {
    const auto matrix = quantized_->matrix(module, rows, cols);
    EXPECT_TRUE(matrix.has_value()) << (matrix ? "" : matrix.error().message);
    std::vector<float> values(static_cast<size_t>(rows * cols));
    if (!matrix) return values;
    EXPECT_TRUE((*matrix)->dequant_rows(0, rows, values.data()).has_value());
    if (kind != nullptr) *kind = (*matrix)->kind();
    if (format != nullptr) *format = (*matrix)->format();
    return values;
  }

  /// The original with every matrix as the quantized checkpoint's codes mean it.
  void fill(EditedCheckpoint& twin) {
    for (auto& [name, tensor] : twin.tensors) {
      if (tensor.shape.size() != 2 || name.find(".experts.") != std::string::npos) continue;
      const std::string module = name.substr(0, name.size() - std::string(".weight").size());
      std::string format;
      const auto values = values_of(module, tensor.shape[0], tensor.shape[1], nullptr, &format);
      if (module.ends_with("mlp.gate")) {
        EXPECT_EQ(format, GetParam().router) << module;
      }
      tensor = f32(tensor.shape, values);
    }
    for (const int layer : {1, 2})
      for (const char* projection : {"gate_proj", "up_proj", "down_proj"}) {
        const std::string at = fmt::format("model.layers.{}.mlp.", layer);
        quant::MatrixKind kind{};
        const auto values = values_of(at + "switch_mlp." + projection, 8 * 64, 64, &kind);
        EXPECT_EQ(kind, GetParam().experts) << at << projection;
        for (size_t e = 0; e < 8; ++e)
          twin.tensors[fmt::format("{}experts.{}.{}.weight", at, e, projection)] =
              f32({64, 64}, {values.begin() + static_cast<std::ptrdiff_t>(e * 64 * 64),
                             values.begin() + static_cast<std::ptrdiff_t>((e + 1) * 64 * 64)});
      }
  }

  testing::TempFolder folder_;
  std::shared_ptr<quant::Checkpoint> quantized_;
};

TEST_P(QuantizedExperts, HaveTheLogitsOfWhatTheirCodesMean) {
  EditedCheckpoint twin(kModel);
  fill(twin);
  LoadOptions in_f64;
  in_f64.arms = {{"qmatmul", "ref"}};
  const auto reference = twin.load(in_f64);
  ASSERT_NE(reference, nullptr);
  const auto ids = expected<int32_t>(kModel, "input_ids_0");
  const auto wanted = logits_of(*reference, ids);
  // One step for all tokens, and one a token: experts meet many rows and few.
  for (const char* arm : {"auto", "rows", "panel"}) {
    LoadOptions options;
    options.model = (folder_.path() / "out").string();
    options.act = "f32", options.kv = "f32";
    options.poison = true;
    options.arms = {{"qmatmul", arm}};
    auto runner = engine::Runner::load(options);
    ASSERT_TRUE(runner.has_value()) << runner.error().message;
    for (const int64_t chunk : {512, 1})
      EXPECT_LE(max_abs_difference(logits_of(**runner, ids, chunk), wanted), 5e-5) << arm << ", chunks of " << chunk;
  }
  // Rounded, it is another model than the original: a comparison that a no-op would not pass.
  EXPECT_GT(max_abs_difference(wanted, expected<float>(kModel, "logits_0")), 1e-3);
}

INSTANTIATE_TEST_SUITE_P(
    All, QuantizedExperts,
    ::testing::Values(Case{"mxfp8", quant::MatrixKind::kMxfp8, 8, 32, 8, "affine 8-bit g64"},
                      Case{"nvfp4", quant::MatrixKind::kNvfp4, 4, 16, 8, "affine 8-bit g64"},
                      Case{"mxfp8_router2", quant::MatrixKind::kMxfp8, 8, 32, 2, "affine 2-bit g64"},
                      Case{"nvfp4_router3", quant::MatrixKind::kNvfp4, 4, 16, 3, "affine 3-bit g64"},
                      Case{"nvfp4_router5", quant::MatrixKind::kNvfp4, 4, 16, 5, "affine 5-bit g64"},
                      Case{"nvfp4_router_alike", quant::MatrixKind::kNvfp4, 4, 16, 0, "nvfp4"},
                      Case{"mxfp8_router_alike", quant::MatrixKind::kMxfp8, 8, 32, 0, "mxfp8"},
                      Case{"affine_router4", quant::MatrixKind::kAffine, 4, 32, 4, "affine 4-bit g64"},
                      Case{"affine_router6", quant::MatrixKind::kAffine, 3, 32, 6, "affine 6-bit g64"},
                      Case{"affine_router_dense", quant::MatrixKind::kAffine, 4, 32, 16, "bf16"}),
    [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace galvani::models
