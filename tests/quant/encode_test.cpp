/// The encoders against mlx.core.quantize (scripts/goldens/make_quantize_goldens.py).
#include "quant/encode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>

#include "formats/safetensors.h"
#include "quant/affine.h"
#include "quant/fp_codec.h"

namespace galvani::quant {
namespace {

const std::filesystem::path kData = std::filesystem::path(GALVANI_TEST_DATA) / "quant";

MatrixKind kind_of(const std::string& mode) {
  for (auto kind : {MatrixKind::kAffine, MatrixKind::kMxfp4, MatrixKind::kMxfp8, MatrixKind::kNvfp4})
    if (mode == matrix_kind_name(kind)) return kind;
  ADD_FAILURE() << mode;
  return MatrixKind::kDense;
}

DType type_of(const std::string& name) {
  return name == "f32" ? DType::kF32 : name == "f16" ? DType::kF16 : DType::kBF16;
}

uint64_t fnv(const std::vector<std::byte>& bytes) {
  uint64_t h = 0xCBF29CE484222325ull;
  for (std::byte b : bytes) h = (h ^ static_cast<uint64_t>(b)) * 0x100000001B3ull;
  return h;
}

struct Encoded {
  std::vector<std::byte> codes, scales, biases;
};

Encoded encode(const CodeFormat& format, const std::vector<float>& weights) {
  const auto count = static_cast<int64_t>(weights.size());
  Encoded out;
  out.codes.resize(static_cast<size_t>(format.code_bytes(count)));
  out.scales.resize(static_cast<size_t>(count / format.group * format.scale_bytes()));
  if (format.affine()) out.biases.resize(out.scales.size());
  encode_groups(format, weights.data(), count, out.codes.data(), out.scales.data(), out.biases.data());
  return out;
}

std::vector<float> golden_weights(const std::string& type) {
  auto file = formats::SafetensorsFile::open(kData / "weights.safetensors");
  EXPECT_TRUE(file);
  auto view = (*file)->tensor(type);
  EXPECT_TRUE(view);
  std::vector<float> weights(view->bytes.size() / 4);
  std::memcpy(weights.data(), view->bytes.data(), view->bytes.size());
  return weights;
}

TEST(Encode, EveryModeWidthGroupAndTypeIsMlxBitForBit) {
  std::ifstream lines(kData / "encoded.txt");
  std::string line;
  int checked = 0;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string type, mode;
    CodeFormat format;
    words >> type >> mode >> format.bits >> format.group >> std::hex;
    format.kind = kind_of(mode);
    format.dtype = type_of(type);
    ASSERT_TRUE(check_code_format(format)) << line;
    const Encoded is = encode(format, golden_weights(type));
    uint64_t codes = 0, scales = 0, biases = 0;
    words >> codes >> scales;
    if (format.affine()) words >> biases;
    ASSERT_FALSE(words.fail()) << line;
    EXPECT_EQ(fnv(is.codes), codes) << line << ": codes";
    EXPECT_EQ(fnv(is.scales), scales) << line << ": scales";
    EXPECT_EQ(fnv(is.biases), format.affine() ? biases : fnv({})) << line << ": biases";
    ++checked;
  }
  EXPECT_EQ(checked, 3 * (6 * 3 + 3));
}

/// Three of them in full, so that a difference has a place.
TEST(Encode, GoldensInFull) {
  auto file = formats::SafetensorsFile::open(kData / "encoded.safetensors");
  ASSERT_TRUE(file);
  const auto weights = golden_weights("bf16");
  for (const CodeFormat& format : {CodeFormat{MatrixKind::kAffine, 3, 128}, CodeFormat{MatrixKind::kMxfp4, 4, 32},
                                   CodeFormat{MatrixKind::kNvfp4, 4, 16}}) {
    const Encoded is = encode(format, weights);
    const auto compare = [&](const std::string& part, const std::vector<std::byte>& bytes) {
      const std::string name = std::string(matrix_kind_name(format.kind)) + "." + part;
      auto view = (*file)->tensor(name);
      ASSERT_TRUE(view) << name;
      ASSERT_EQ(view->bytes.size(), bytes.size()) << name;
      const auto row = static_cast<size_t>(view->shape[1]);
      for (size_t i = 0; i < bytes.size(); ++i)
        ASSERT_EQ(bytes[i], view->bytes[i]) << name << " row " << i / row << " byte " << i % row;
    };
    compare("codes", is.codes);
    compare("scales", is.scales);
    if (format.affine()) compare("biases", is.biases);
  }
}

/// What the codes mean stays within half a step of the weights.
TEST(Encode, CodesDecodeToTheNearestValue) {
  std::vector<float> weights;
  for (int i = 0; i < 1024; ++i) weights.push_back(static_cast<float>(std::sin(0.37 * i) * std::exp(-i / 400.0)));
  for (int bits : {2, 3, 4, 5, 6, 8})
    for (int group : {32, 64, 128}) {
      const CodeFormat format{MatrixKind::kAffine, bits, group, DType::kF32};
      const Encoded is = encode(format, weights);
      const AffineView view{8, 128, bits, group, DType::kF32, is.codes.data(), is.scales.data(), is.biases.data()};
      std::vector<float> back(weights.size());
      affine_dequant_rows(view, 0, 8, back.data());
      for (size_t i = 0; i < weights.size(); ++i) {
        float step;
        std::memcpy(&step, is.scales.data() + i / static_cast<size_t>(group) * 4, 4);
        // The largest magnitude is hit exactly; the far end may lie up to one more half step outside the codes.
        EXPECT_LE(std::fabs(back[i] - weights[i]), 1.01f * std::fabs(step)) << bits << ' ' << group << ' ' << i;
      }
    }
}

TEST(Encode, RefusesWhatMlxHasNot) {
  for (const CodeFormat& format : {CodeFormat{MatrixKind::kAffine, 7, 64}, CodeFormat{MatrixKind::kAffine, 1, 64},
                                   CodeFormat{MatrixKind::kAffine, 4, 16}, CodeFormat{MatrixKind::kAffine, 4, 256},
                                   CodeFormat{MatrixKind::kMxfp4, 8, 32}, CodeFormat{MatrixKind::kMxfp8, 8, 64},
                                   CodeFormat{MatrixKind::kNvfp4, 4, 32}, CodeFormat{MatrixKind::kLut4, 4, 32},
                                   CodeFormat{MatrixKind::kDense, 16, 0}}) {
    const Status status = check_code_format(format);
    ASSERT_FALSE(status) << format.bits << ' ' << format.group;
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(status.error().message.find("affine takes 2, 3, 4, 5, 6 or 8 bits in groups of 32, 64 or 128"),
              std::string::npos)
        << status.error().message;
  }
}

}  // namespace
}  // namespace galvani::quant
