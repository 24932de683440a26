/// MLX folders made by hand: float formats by their definition, per-module overrides, wrappers, and what must be
/// refused.
#include <gtest/gtest.h>

#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>

#include "formats/bytes.h"
#include "formats/safetensors.h"
#include "quant/checkpoint.h"
#include "quant/fp_codec.h"

namespace galvani::quant {
namespace {

using testing::TempFolder;

/// Collects tensors, then writes folder and config.
class Folder {
 public:
  void add(const std::string& name, DType dtype, Shape shape, std::vector<uint8_t> bytes) {
    bytes_.push_back(std::move(bytes));
    tensors_.push_back({name, dtype, std::move(shape), {}});
  }
  std::vector<uint8_t> random(size_t size) {
    std::vector<uint8_t> bytes(size);
    for (auto& byte : bytes) byte = static_cast<uint8_t>(random_());
    return bytes;
  }
  /// bf16 numbers between -1 and 1.
  std::vector<uint8_t> random_bf16(size_t count) {
    std::vector<uint8_t> bytes;
    for (size_t i = 0; i < count; ++i) {
      const uint16_t half = f32_to_bf16(static_cast<float>(random_() % 256) / 128.0f - 1.0f);
      bytes.push_back(static_cast<uint8_t>(half));
      bytes.push_back(static_cast<uint8_t>(half >> 8));
    }
    return bytes;
  }
  void affine(const std::string& module, int64_t rows, int64_t cols, int bits, int group) {
    add(module + ".weight", DType::kU32, Shape{rows, cols * bits / 32},
        random(static_cast<size_t>(rows * cols * bits / 8)));
    for (const char* name : {".scales", ".biases"})
      add(module + name, DType::kBF16, Shape{rows, cols / group},
          random_bf16(static_cast<size_t>(rows * cols / group)));
  }
  Result<std::shared_ptr<Checkpoint>> open(const std::string& config) {
    for (size_t i = 0; i < tensors_.size(); ++i) tensors_[i].bytes = std::as_bytes(std::span(bytes_[i]));
    auto written = formats::write_safetensors(folder_.path() / "model.safetensors", tensors_, {{"format", "mlx"}});
    if (!written) return tl::unexpected<Error>(written.error());
    folder_.write("config.json", config);
    return Checkpoint::open(folder_.path());
  }

 private:
  TempFolder folder_;
  std::vector<formats::SafetensorsToWrite> tensors_;
  std::vector<std::vector<uint8_t>> bytes_;
  std::mt19937 random_{99};
};

/// What was logged while it lived.
class Log {
 public:
  Log() : old_(spdlog::default_logger()) {
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_st>(text_)));
  }
  ~Log() { spdlog::set_default_logger(old_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::shared_ptr<spdlog::logger> old_;
};

constexpr const char* kAffine4 = R"({"model_type":"x","quantization":{"group_size":64,"bits":4}})";

template <typename T>
void expect_error(const Result<T>& result, const std::string& words) {
  ASSERT_FALSE(result) << "expected: " << words;
  EXPECT_NE(result.error().message.find(words), std::string::npos)
      << "expected '" << words << "' in: " << result.error().message;
}

TEST(Mlx, FloatFormatsByDefinition) {
  const float kE2M1[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const struct {
    const char* mode;
    MatrixKind kind;
    int bits, group;
  } cases[] = {
      {"mxfp4", MatrixKind::kMxfp4, 4, 32}, {"mxfp8", MatrixKind::kMxfp8, 8, 32}, {"nvfp4", MatrixKind::kNvfp4, 4, 16}};
  for (const auto& c : cases) {
    const int64_t rows = 3, cols = 64;
    Folder folder;
    auto codes = folder.random(static_cast<size_t>(rows * cols * c.bits / 8));
    auto scales = folder.random(static_cast<size_t>(rows * cols / c.group));
    for (auto& scale : scales)
      scale = static_cast<uint8_t>(c.kind == MatrixKind::kNvfp4 ? scale % 0x7f : 110 + scale % 30);
    if (c.bits == 8)
      for (auto& code : codes) code = (code & 0x7f) == 0x7f ? 0 : code;  // NaN compares unequal
    folder.add("m.weight", DType::kU32, Shape{rows, cols * c.bits / 32}, codes);
    folder.add("m.scales", DType::kU8, Shape{rows, cols / c.group}, scales);
    Log log;
    auto checkpoint = folder.open(std::string(R"({"quantization":{"mode":")") + c.mode + "\"}}");
    ASSERT_TRUE(checkpoint) << checkpoint.error().message;
    auto matrix = (*checkpoint)->matrix("m", rows, cols);
    ASSERT_TRUE(matrix) << matrix.error().message;
    EXPECT_EQ(log.text(), "");
    EXPECT_EQ((*matrix)->kind(), c.kind);
    EXPECT_EQ((*matrix)->format(), c.mode);
    std::vector<float> out(static_cast<size_t>(rows * cols));
    ASSERT_TRUE((*matrix)->dequant_rows(0, rows, out.data()));
    // The fields of E4M3 taken apart with ldexp.
    const auto e4m3_value = [](uint8_t v) {
      const int exponent = (v >> 3) & 15, mantissa = v & 7;
      const double magnitude = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
      return static_cast<float>(v & 0x80 ? -magnitude : magnitude);
    };
    for (int64_t i = 0; i < rows * cols; ++i) {
      const auto at = static_cast<size_t>(i);
      const uint8_t scale = scales[static_cast<size_t>(i / c.group)];
      const float s = c.kind == MatrixKind::kNvfp4 ? e4m3_value(scale) : std::ldexp(1.0f, scale - 127);
      float value;
      if (c.bits == 8) {
        value = e4m3_value(codes[at]);
      } else {
        const int nibble = (codes[at / 2] >> (4 * (i % 2))) & 15;
        value = (nibble & 8 ? -1.0f : 1.0f) * kE2M1[nibble & 7];
      }
      ASSERT_EQ(out[at], value * s) << c.mode << ' ' << i;
    }
    expect_error((*matrix)->affine(0, 1, 0, 64), "not an affine format");
  }
  EXPECT_TRUE(std::isnan(e4m3(0x7f)));
  EXPECT_TRUE(std::isnan(e4m3(0xff)));
  EXPECT_EQ(e4m3(0x7e), 448.0f);
  EXPECT_EQ(e8m0(0), 0x1p-127f);
  EXPECT_EQ(e8m0(127), 1.0f);
  EXPECT_EQ(e8m0_half(0), 0x1p-128f);
  EXPECT_EQ(e8m0_half(1), 0x1p-127f);
  EXPECT_EQ(e8m0_half(128), 1.0f);
}

TEST(Mlx, ScalesThatAreNoNumbersAreNamed) {
  std::vector<float> out(4 * 128);
  const auto with = [](const char* part, size_t at, DType type, uint16_t value) {
    Folder folder;
    folder.add("m.weight", DType::kU32, Shape{4, 16}, folder.random(256));
    for (const char* name : {".scales", ".biases"}) {
      auto bytes = folder.random_bf16(8);
      if (std::string(name) == part) std::memcpy(bytes.data() + 2 * at, &value, 2);
      if (type == DType::kF16 && std::string(name) != part)
        for (size_t i = 1; i < bytes.size(); i += 2) bytes[i] &= 0x3f;
      folder.add(std::string("m") + name, type, Shape{4, 2}, bytes);
    }
    auto checkpoint = folder.open(kAffine4);
    EXPECT_TRUE(checkpoint);
    return *(*checkpoint)->matrix("m", 4, 128);
  };
  const auto nan = with(".scales", 5, DType::kBF16, 0x7fc1);
  expect_error(nan->affine(0, 4, 0, 128), "m: the scale of row 2, group 1 is not a finite number");
  expect_error(nan->dequant_rows(2, 3, out.data()), "row 2, group 1");
  EXPECT_TRUE(nan->dequant_rows(0, 2, out.data())) << "the other rows are good";
  EXPECT_TRUE(nan->affine(2, 3, 0, 64)) << "and so are other columns";
  std::vector<std::byte> read(4 * 64 + 4 * 4 + 4 * 4);
  const auto read_rows = [&](const MatrixSource& matrix, int64_t r0, int64_t r1) {
    return matrix.read_affine(r0, r1, read.data(), read.data() + 256, read.data() + 272);
  };
  expect_error(read_rows(*nan, 1, 4), "m: the scale of row 2, group 1 is not a finite number");
  EXPECT_TRUE(read_rows(*nan, 3, 4));
  const auto infinite = with(".biases", 0, DType::kBF16, 0xff80);
  expect_error(infinite->affine(0, 4, 0, 128), "m: the bias of row 0, group 0");
  const auto half = with(".biases", 7, DType::kF16, 0x7c00);
  expect_error(half->dequant_rows(3, 4, out.data()), "m: the bias of row 3, group 1");
  expect_error(read_rows(*half, 0, 4), "m: the bias of row 3, group 1");

  for (const auto& [mode, bits, group, code] :
       {std::tuple{"mxfp4", 4, 32, 0xff}, {"mxfp8", 8, 32, 0xff}, {"nvfp4", 4, 16, 0x7f}, {"nvfp4", 4, 16, 0xff}}) {
    Folder folder;
    folder.add("m.weight", DType::kU32, Shape{4, 128 * bits / 32}, folder.random(static_cast<size_t>(64 * bits)));
    std::vector<uint8_t> scales(static_cast<size_t>(4 * 128 / group), 100);
    scales.back() = static_cast<uint8_t>(code);
    folder.add("m.scales", DType::kU8, Shape{4, 128 / group}, scales);
    auto checkpoint = folder.open(std::string(R"({"quantization":{"mode":")") + mode + "\"}}");
    ASSERT_TRUE(checkpoint);
    auto matrix = (*checkpoint)->matrix("m", 4, 128);
    ASSERT_TRUE(matrix) << matrix.error().message;
    expect_error((*matrix)->dequant_rows(1, 4, out.data()),
                 fmt::format("m: the scale of row 3, group {} is NaN", 128 / group - 1));
    EXPECT_TRUE((*matrix)->dequant_rows(0, 3, out.data()));
  }
}

TEST(Mlx, OverridesAreHonouredInSilence) {
  Folder folder;
  folder.affine("model.a", 4, 128, 4, 64);
  folder.affine("model.b", 4, 128, 8, 32);
  folder.affine("language_model.model.c", 4, 128, 6, 64);
  folder.add("model.d.weight", DType::kBF16, Shape{4, 8}, folder.random_bf16(32));
  folder.add("model.e.weight", DType::kBF16, Shape{4, 8}, folder.random_bf16(32));
  Log log;
  auto checkpoint = folder.open(R"({"quantization":{"group_size":64,"bits":4,"model.b":{"group_size":32,"bits":8},
      "language_model.model.c":{"bits":6},"model.d":false}})");
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  EXPECT_EQ((*(*checkpoint)->matrix("model.a", 4, 128))->format(), "affine 4-bit g64");
  EXPECT_EQ((*(*checkpoint)->matrix("model.b", 4, 128))->format(), "affine 8-bit g32");
  EXPECT_EQ((*(*checkpoint)->matrix("model.c", 4, 128))->format(), "affine 6-bit g64")
      << "the wrapper's prefix is dropped";
  EXPECT_EQ((*(*checkpoint)->matrix("model.d", 4, 8))->format(), "bf16");
  EXPECT_EQ((*(*checkpoint)->matrix("model.e", 4, 8))->format(), "bf16");
  EXPECT_EQ(log.text(), "");
  EXPECT_TRUE((*checkpoint)->unused().empty());
}

TEST(Mlx, WhereConfigAndShapesDisagreeTheShapesWin) {
  Folder folder;
  folder.affine("m", 4, 128, 8, 32);  // the same ratio of words to scales as 4 bits, groups of 64
  folder.add("dense.weight", DType::kBF16, Shape{4, 8}, folder.random_bf16(32));
  Log log;
  auto checkpoint = folder.open(R"({"quantization":{"group_size":64,"bits":4,"dense":{"group_size":64,"bits":4}}})");
  ASSERT_TRUE(checkpoint);
  auto matrix = (*checkpoint)->matrix("m", 4, 128);
  ASSERT_TRUE(matrix) << matrix.error().message;
  EXPECT_EQ((*matrix)->bits(), 8);
  EXPECT_EQ((*matrix)->group(), 32);
  EXPECT_NE(log.text().find(
                "config.json says of m: affine 4 bits, groups of 64; its tensors are affine 8 bits, groups of 32"),
            std::string::npos)
      << log.text();
  ASSERT_TRUE((*checkpoint)->matrix("dense", 4, 8));
  EXPECT_NE(log.text().find("dense is quantised, but it has no scales"), std::string::npos) << log.text();
}

TEST(Mlx, StackedExpertsAreOneMatrix) {
  Folder folder;
  folder.add("e.weight", DType::kU32, Shape{3, 4, 16}, folder.random(3 * 4 * 64));
  for (const char* name : {"e.scales", "e.biases"})
    folder.add(name, DType::kBF16, Shape{3, 4, 2}, folder.random_bf16(24));
  folder.add("x.experts.gate_up_proj", DType::kBF16, Shape{2, 3, 8}, folder.random_bf16(48));
  auto checkpoint = folder.open(kAffine4);
  ASSERT_TRUE(checkpoint);
  auto matrix = (*checkpoint)->matrix("e", 12, 128);
  ASSERT_TRUE(matrix) << matrix.error().message;
  EXPECT_EQ((*matrix)->rows(), 12);
  EXPECT_TRUE((*checkpoint)->matrix("x.experts.gate_up_proj", 6, 8)) << "no .weight ending";
}

TEST(Mlx, RefusesShapesThatDoNotFit) {
  Folder folder;
  folder.affine("good", 4, 128, 4, 64);
  folder.add("short.weight", DType::kU32, Shape{4, 16}, folder.random(256));
  folder.add("short.scales", DType::kBF16, Shape{3, 2}, folder.random_bf16(6));
  folder.add("short.biases", DType::kBF16, Shape{3, 2}, folder.random_bf16(6));
  folder.add("uneven.weight", DType::kU32, Shape{4, 16}, folder.random(256));
  folder.add("uneven.scales", DType::kBF16, Shape{4, 3}, folder.random_bf16(12));
  folder.add("uneven.biases", DType::kBF16, Shape{4, 3}, folder.random_bf16(12));
  folder.add("halved.weight", DType::kU32, Shape{4, 16}, folder.random(256));
  folder.add("halved.scales", DType::kBF16, Shape{4, 2}, folder.random_bf16(8));
  folder.add("halved.biases", DType::kF32, Shape{4, 2}, folder.random(32));
  folder.add("bare.weight", DType::kU32, Shape{4, 16}, folder.random(256));
  folder.add("bare.scales", DType::kBF16, Shape{4, 2}, folder.random_bf16(8));
  folder.add("odd.weight", DType::kU32, Shape{4, 28}, folder.random(448));
  folder.add("odd.scales", DType::kBF16, Shape{4, 2}, folder.random_bf16(8));
  folder.add("odd.biases", DType::kBF16, Shape{4, 2}, folder.random_bf16(8));
  folder.add("empty.weight", DType::kU32, Shape{4, 0}, {});
  folder.add("empty.scales", DType::kBF16, Shape{4, 0}, {});
  folder.add("empty.biases", DType::kBF16, Shape{4, 0}, {});
  folder.add("bytes.weight", DType::kU8, Shape{4, 64}, folder.random(256));
  folder.add("bytes.scales", DType::kBF16, Shape{4, 2}, folder.random_bf16(8));
  folder.add("bytes.biases", DType::kBF16, Shape{4, 2}, folder.random_bf16(8));
  folder.add("whole.weight", DType::kI32, Shape{4, 8}, folder.random(128));
  auto checkpoint = folder.open(kAffine4);
  ASSERT_TRUE(checkpoint) << checkpoint.error().message;
  auto& ckpt = **checkpoint;
  expect_error(ckpt.matrix("good", 4, 96), "packed u32 codes of a [4, 96] matrix");
  expect_error(ckpt.matrix("good", 8, 128),
               "'good.weight' is u32 [4, 16]; expected packed u32 codes of a [8, 128] matrix");
  expect_error(ckpt.matrix("good", 0, 128), "a matrix of [0, 128]");
  expect_error(ckpt.matrix("good", 4, -1), "a matrix of [4, -1]");
  expect_error(ckpt.matrix("short", 4, 128), "'short.scales' is bf16 [3, 2]");
  expect_error(ckpt.matrix("uneven", 4, 128), "whose scales are [4, 3]");
  expect_error(ckpt.matrix("halved", 4, 128), "expected the same as the scales, bf16 [4, 2]");
  expect_error(ckpt.matrix("bare", 4, 128), "bf16 scales but no biases");
  expect_error(ckpt.matrix("odd", 4, 128), "7-bit codes are not supported");
  expect_error(ckpt.matrix("empty", 4, 128), "expected packed u32 codes");
  expect_error(ckpt.matrix("bytes", 4, 128), "'bytes.weight' is u8");
  expect_error(ckpt.matrix("whole", 4, 8), "'whole.weight' is i32 [4, 8]; expected f32, f16 or bf16 [4, 8]");
  expect_error(ckpt.vector("whole.weight", 32), "expected 32 elements of f32, f16 or bf16");
  EXPECT_TRUE(ckpt.matrix("good", 4, 128));
}

TEST(Mlx, RefusesQuantizationItDoesNotKnow) {
  const auto expect = [](const char* config, const std::string& words) {
    Folder folder;
    folder.affine("m", 4, 128, 4, 64);
    expect_error(folder.open(config), words);
  };
  expect(R"({"quantization":{"group_size":64,"bits":4,"mode":"fancy"}})",
         "quantization mode 'fancy' is not supported; supported are affine");
  expect(R"({"quantization":{"group_size":0,"bits":4}})", "'group_size' is 0");
  expect(R"({"quantization":{"group_size":-64,"bits":4}})", "'group_size' is -64");
  expect(R"({"quantization":{"group_size":48,"bits":4}})", "4 bits in groups of 48 is not supported");
  expect(R"({"quantization":{"group_size":64,"bits":7}})", "7 bits in groups of 64 is not supported");
  expect(R"({"quantization":{"group_size":64,"bits":2147483648}})", "'bits' is 2147483648");
  expect(R"({"quantization":{"group_size":64,"bits":4,"mode":"mxfp4"}})", "mxfp4 with 4 bits in groups of 64");
  expect(R"({"quantization":{"group_size":64,"bits":4,"m":{"bits":1}}})", "quantization.m: affine with 1 bits");
  expect(R"({"quantization":[]})", "quantization: must be an object");
  expect(R"({"quantization_config":{"quant_method":"gptq","bits":4}})", "quantization method 'gptq' is not supported");
  expect(R"({"quantization_config":{"quant_method":"fp8"}})", "'fp8'");
  expect(R"({"quantization_config":{}})", "without a name");
  Folder mlx;
  mlx.affine("m", 4, 128, 4, 64);
  EXPECT_TRUE(mlx.open(R"({"quantization_config":{"group_size":64,"bits":4}})"));
}

TEST(Mlx, TwoSpellingsOfOneTensor) {
  Folder folder;
  folder.add("model.a.weight", DType::kBF16, Shape{1}, folder.random_bf16(1));
  folder.add("language_model.model.a.weight", DType::kBF16, Shape{1}, folder.random_bf16(1));
  expect_error(folder.open("{}"), "mean the same thing");
}

TEST(Mlx, TowersMayBeLeftUnread) {
  Folder folder;
  for (const char* name :
       {"vision_tower.a.weight", "model.visual.b", "mtp.layers.0.c", "model.layers.0.self_attn.rotary_emb.inv_freq",
        "multi_modal_projector.d", "model.layers.0.x.output_max", "model.real.weight"})
    folder.add(name, DType::kBF16, Shape{1}, folder.random_bf16(1));
  auto checkpoint = folder.open("{}");
  ASSERT_TRUE(checkpoint);
  EXPECT_EQ((*checkpoint)->unused(), std::vector<std::string>{"model.real.weight"});
}

TEST(Mlx, ConvShapeTellsFoldedNorms) {
  for (bool converted : {true, false}) {
    Folder folder;
    folder.add("model.layers.0.linear_attn.conv1d.weight", DType::kBF16, converted ? Shape{8, 4, 1} : Shape{8, 1, 4},
               folder.random_bf16(32));
    Log log;
    auto checkpoint = folder.open("{}");
    ASSERT_TRUE(checkpoint);
    EXPECT_EQ((*checkpoint)->norms_folded(), converted);
    EXPECT_NE(log.text().find("conv1d is"), std::string::npos) << "the decision is logged";
  }
}

/// The quantised fixtures stay close to the weights they were made from.
TEST(Mlx, FixturesResembleTheirOriginals) {
  const char* root = std::getenv("GALVANI_FIXTURES");
  if (root == nullptr) GTEST_SKIP() << "GALVANI_FIXTURES names no folder with the large fixtures";
  const struct {
    const char *quantised, *original;
    double bound;  ///< root mean square error over root mean square
  } cases[] = {{"qwen3-4-16-nvfp4", "qwen3", 0.12},
               {"llama-8-32-mxfp8", "llama", 0.05},
               {"qwen3_moe-4-32-mxfp4", "qwen3_moe", 0.16},
               {"qwen3-6-32-affine", "qwen3", 0.03}};
  for (const auto& c : cases) {
    auto a = Checkpoint::open(std::filesystem::path(root) / "mlx" / c.quantised),
         b = Checkpoint::open(std::filesystem::path(root) / "tiny" / c.original);
    ASSERT_TRUE(a) << a.error().message;
    ASSERT_TRUE(b) << b.error().message;
    int compared = 0;
    for (const auto& name : (*b)->unused()) {
      const auto shape = *(*b)->shape(name);
      if (shape.rank() != 2 || !(*a)->has(name)) continue;
      const auto module = name.substr(0, name.size() - 7);
      auto x = (*a)->matrix(module, shape[0], shape[1]), y = (*b)->matrix(module, shape[0], shape[1]);
      ASSERT_TRUE(x && y) << name;
      std::vector<float> found(static_cast<size_t>(shape[0] * shape[1])), expected(found.size());
      ASSERT_TRUE((*x)->dequant_rows(0, shape[0], found.data()));
      ASSERT_TRUE((*y)->dequant_rows(0, shape[0], expected.data()));
      double error = 0, power = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        error += std::pow(static_cast<double>(found[i]) - expected[i], 2);
        power += std::pow(static_cast<double>(expected[i]), 2);
      }
      EXPECT_LT(std::sqrt(error / power), c.bound) << c.quantised << ' ' << name;
      ++compared;
    }
    EXPECT_GT(compared, 8) << c.quantised;
  }
}

}  // namespace
}  // namespace galvani::quant
