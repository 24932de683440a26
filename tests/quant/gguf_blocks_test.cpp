#include "quant/gguf_blocks.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <random>

#include "formats/safetensors.h"
#include "quant/sources.h"

namespace galvani::quant {
namespace {

using formats::GgmlType;

const std::filesystem::path kData = std::filesystem::path(GALVANI_TEST_DATA) / "gguf";

/// splitmix64, as in scripts/goldens/make_gguf_goldens.py.
std::vector<std::byte> splitmix(uint64_t seed, size_t bytes) {
  std::vector<std::byte> out((bytes + 7) / 8 * 8);
  for (size_t i = 0; i < out.size() / 8; ++i) {
    uint64_t z = seed + (i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    z ^= z >> 31;
    std::memcpy(out.data() + 8 * i, &z, 8);
  }
  out.resize(bytes);
  return out;
}

struct Format {
  GgmlType type;
  std::vector<size_t> high_bytes;  ///< of f16 fields; their top exponent bit is cleared to keep values finite
};
const std::vector<Format> kFormats = {{GgmlType::kQ4_0, {1}},    {GgmlType::kQ4_1, {1, 3}}, {GgmlType::kQ5_0, {1}},
                                      {GgmlType::kQ5_1, {1, 3}}, {GgmlType::kQ8_0, {1}},    {GgmlType::kQ2_K, {81, 83}},
                                      {GgmlType::kQ3_K, {109}},  {GgmlType::kQ4_K, {1, 3}}, {GgmlType::kQ5_K, {1, 3}},
                                      {GgmlType::kQ6_K, {209}},  {GgmlType::kIQ4_NL, {1}},  {GgmlType::kMXFP4, {}},
                                      {GgmlType::kF16, {1}},     {GgmlType::kBF16, {1}},    {GgmlType::kF32, {3}}};

std::vector<std::byte> random_blocks(const Format& format, uint64_t seed, size_t count) {
  const auto size = static_cast<size_t>(formats::ggml_type_info(format.type).bytes);
  auto bytes = splitmix(seed, count * size);
  for (size_t i = 0; i < count; ++i)
    for (size_t at : format.high_bytes) bytes[i * size + at] &= std::byte{0xBF};
  return bytes;
}

class Blocks : public ::testing::TestWithParam<Format> {};

/// ggml's values bit for bit, but for the sign of zeros.
TEST_P(Blocks, MatchGoldens) {
  const auto& info = formats::ggml_type_info(GetParam().type);
  auto file = formats::SafetensorsFile::open(kData / "blocks.safetensors");
  ASSERT_TRUE(file) << file.error().message;
  const auto blocks = (*file)->tensor(std::string(info.name) + ".blocks"),
             values = (*file)->tensor(std::string(info.name) + ".values");
  ASSERT_TRUE(blocks && values);
  const int64_t count = 64;
  ASSERT_EQ(blocks->bytes.size(), static_cast<size_t>(count * info.bytes));
  std::vector<float> out(static_cast<size_t>(count * info.block));
  ASSERT_EQ(values->bytes.size(), out.size() * 4);
  decode_blocks(GetParam().type, blocks->bytes.data(), count, out.data());
  for (size_t i = 0; i < out.size(); ++i) {
    float expected;
    std::memcpy(&expected, values->bytes.data() + 4 * i, 4);
    ASSERT_EQ(std::bit_cast<uint32_t>(out[i] + 0.0f), std::bit_cast<uint32_t>(expected + 0.0f))
        << info.name << " element " << i;
  }
}

TEST_P(Blocks, MatchHashOf2048Blocks) {
  const auto& info = formats::ggml_type_info(GetParam().type);
  std::ifstream lines(kData / "hashes.txt");
  std::string name, hash;
  int id = -1;
  while (lines >> name >> id >> hash && name != info.name) {
  }
  ASSERT_EQ(name, info.name);
  const auto blocks = random_blocks(GetParam(), 2000 + static_cast<uint64_t>(id), 2048);
  std::vector<float> out(static_cast<size_t>(2048 * info.block));
  decode_blocks(GetParam().type, blocks.data(), 2048, out.data());
  uint64_t value = 0xCBF29CE484222325ull;
  for (float x : out) {
    const auto bits = std::bit_cast<uint32_t>(x + 0.0f);
    for (int b = 0; b < 4; ++b) value = (value ^ ((bits >> (8 * b)) & 255)) * 0x100000001B3ull;
  }
  EXPECT_EQ(value, std::strtoull(hash.c_str(), nullptr, 16)) << info.name;
}

/// A matrix of such blocks, cut by rows and columns into affine codes, gives dequant_rows' values bit for bit.
TEST_P(Blocks, ImportIsExact) {
  const auto& format = GetParam();
  const auto& info = formats::ggml_type_info(format.type);
  const auto import = affine_import(format.type);
  const int64_t rows = 8, cols = 1024;
  const auto bytes = random_blocks(format, 77, static_cast<size_t>(rows * cols / info.block));
  auto source = make_gguf_source("m", format.type, {bytes, nullptr}, rows, cols);
  ASSERT_TRUE(source) << source.error().message;
  std::vector<float> all(static_cast<size_t>(rows * cols));
  ASSERT_TRUE((*source)->dequant_rows(0, rows, all.data()));
  if (!import) {
    EXPECT_NE((*source)->kind(), MatrixKind::kAffine);
    EXPECT_FALSE((*source)->affine(0, 1, 0, cols));
    return;
  }
  EXPECT_EQ((*source)->bits(), import->bits);
  EXPECT_EQ((*source)->group(), import->group);
  std::mt19937 random(5);
  for (int trial = 0; trial < 20; ++trial) {
    const int64_t r0 = static_cast<int64_t>(random() % 8),
                  r1 = r0 + static_cast<int64_t>(random() % static_cast<uint32_t>(rows - r0 + 1));
    const int64_t c0 = 32 * static_cast<int64_t>(random() % 32);
    const int64_t c1 =
        trial == 0 ? cols : c0 + 32 * static_cast<int64_t>(random() % static_cast<uint32_t>((cols - c0) / 32 + 1));
    auto part = (*source)->affine(r0, r1, c0, c1);
    ASSERT_TRUE(part) << part.error().message;
    ASSERT_EQ(part->view.scale_dtype, import->scale_dtype);
    std::vector<float> cut(static_cast<size_t>((r1 - r0) * (c1 - c0)));
    if (cut.empty()) continue;
    affine_dequant_rows(part->view, 0, r1 - r0, cut.data());
    for (int64_t r = r0; r < r1; ++r)
      ASSERT_EQ(
          std::memcmp(cut.data() + (r - r0) * (c1 - c0), all.data() + r * cols + c0, static_cast<size_t>(c1 - c0) * 4),
          0)
          << info.name << " row " << r << " columns " << c0 << " to " << c1;
  }
  EXPECT_FALSE((*source)->affine(0, 1, 8, 64));
  EXPECT_FALSE((*source)->affine(0, 9, 0, 64));
  EXPECT_FALSE((*source)->affine(0, 1, 0, cols + 32));
}

/// Scales that are not finite or that f16 cannot carry are an error, never a wrong number.
TEST_P(Blocks, DamagedScalesAreRefused) {
  const auto& format = GetParam();
  if (!affine_import(format.type)) return;
  const auto& info = formats::ggml_type_info(format.type);
  auto bytes = random_blocks(format, 3, static_cast<size_t>(1024 / info.block));
  const size_t high = format.high_bytes[0];
  bytes[high] = std::byte{0x7C};  // infinity
  bytes[high - 1] = std::byte{0};
  auto source = make_gguf_source("m", format.type, {bytes, nullptr}, 1, 1024);
  ASSERT_TRUE(source);
  auto part = (*source)->affine(0, 1, 0, 1024);
  ASSERT_FALSE(part);
  EXPECT_NE(part.error().message.find("damaged"), std::string::npos);
  EXPECT_TRUE((*source)->affine(0, 1, 512, 1024)) << "blocks outside the range do not matter";
}

INSTANTIATE_TEST_SUITE_P(All, Blocks, ::testing::ValuesIn(kFormats), [](const ::testing::TestParamInfo<Format>& test) {
  return std::string(formats::ggml_type_info(test.param.type).name);
});

TEST(RowMap, UndoesTheLlamaInterleaving) {
  const RowMap map{8};
  // HF row s·4+i of a head of 8 is file row 2i+s.
  const int64_t expected[] = {0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15};
  for (int64_t r = 0; r < 16; ++r) EXPECT_EQ(map.file_row(r), expected[r]);
  EXPECT_EQ(RowMap{}.file_row(5), 5);
}

TEST(GgufSource, ChecksItsSize) {
  std::vector<std::byte> bytes(18 * 4);
  EXPECT_TRUE(make_gguf_source("m", GgmlType::kQ4_0, {bytes, nullptr}, 2, 64));
  EXPECT_FALSE(make_gguf_source("m", GgmlType::kQ4_0, {bytes, nullptr}, 2, 63));
  EXPECT_FALSE(make_gguf_source("m", GgmlType::kQ4_0, {bytes, nullptr}, 3, 64));
  EXPECT_FALSE(make_gguf_source("m", GgmlType::kQ4_0, {bytes, nullptr}, int64_t{1} << 62, 64));
  EXPECT_FALSE(make_gguf_source("m", GgmlType::kQ4_0, {bytes, nullptr}, 2, 64, {4}))
      << "two rows are not a head of four";
}

}  // namespace
}  // namespace galvani::quant
