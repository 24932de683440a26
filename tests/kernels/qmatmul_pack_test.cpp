/// Packing keeps every stored value: unpacked bits equal the source's.
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/qmatmul/pack_scales.h"
#include "kernels/qmatmul/packed.h"
#include "qmatmul_source.h"

namespace galvani::kernels {
namespace {

using testing::MemoryMatrix;
using testing::Scales;

/// Packs rows [r0, r1) and compares value by value; returns the layout's name.
std::string expect_round_trip(const MemoryMatrix& source, int64_t r0, int64_t r1) {
  auto packed = qmatmul_pack(source, r0, r1);
  if (!packed) {
    ADD_FAILURE() << packed.error().message;
    return "";
  }
  const CpuMatrix& w = **packed;
  EXPECT_EQ(w.rows, r1 - r0);
  std::vector<float> values(static_cast<size_t>(w.rows * w.cols));
  qmatmul_unpack(w, 0, w.rows, values.data());
  for (int64_t r = 0; r < w.rows; ++r)
    for (int64_t c = 0; c < w.cols; ++c)
      if (values[static_cast<size_t>(r * w.cols + c)] != source.weight(r0 + r, c)) {
        ADD_FAILURE() << w.layout << " row " << r << " column " << c << ": "
                      << values[static_cast<size_t>(r * w.cols + c)] << ", the source has " << source.weight(r0 + r, c);
        return w.layout;
      }
  return w.layout;
}

TEST(QmatmulPack, AffineValuesSurvive) {
  uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  for (const int bits : {2, 3, 4, 5, 6, 8})
    for (const int group : {16, 32, 64, 128})
      for (const DType type : {DType::kF16, DType::kBF16, DType::kF32})
        for (const Scales scales : {Scales::kFree, Scales::kCentred}) {
          SCOPED_TRACE(::testing::Message() << "seed " << seed << " bits " << bits << " group " << group);
          const auto source = MemoryMatrix::affine_random(37, 384, bits, group, type, scales, seed++);
          const std::string layout = expect_round_trip(source, 3, 36);
          if (scales == Scales::kCentred && type != DType::kF32) {
            EXPECT_NE(layout.find("no bias"), std::string::npos) << layout;
          }
        }
}

TEST(QmatmulPack, KQuantScalesBecomeTwoLevels) {
  uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  const struct {
    int bits, group;
    Scales scales;
    const char* layout;
  } kinds[] = {
      {4, 32, Scales::kKQuant, "affine4 g32 scale two-level, bias two-level"},
      {5, 32, Scales::kKQuant, "affine5 g32 scale two-level, bias two-level"},
      {2, 16, Scales::kKQuant, "affine2 g16 scale two-level, bias two-level"},
      {6, 16, Scales::kKQuantMid, "affine6 g16 scale two-level, no bias"},
      {3, 16, Scales::kKQuantMid, "affine3 g16 scale two-level, no bias"},
  };
  for (const auto& kind : kinds)
    for (const int64_t cols : {256, 512, 640}) {
      SCOPED_TRACE(::testing::Message() << "seed " << seed);
      const auto source =
          MemoryMatrix::affine_random(64, cols, kind.bits, kind.group, DType::kF32, kind.scales, seed++);
      EXPECT_EQ(expect_round_trip(source, 0, 64), kind.layout);
    }
}

TEST(QmatmulPack, FreeF32ScalesStayF32) {
  const auto source = MemoryMatrix::affine_random(32, 256, 4, 32, DType::kF32, Scales::kFree, 5);
  EXPECT_EQ(expect_round_trip(source, 0, 32), "affine4 g32 scale f32, bias f32");
}

TEST(QmatmulPack, DenseKeepsTheNarrowestExactType) {
  EXPECT_EQ(expect_round_trip(MemoryMatrix::dense_random(33, 100, DType::kF32, 1), 0, 33), "dense f32");
  EXPECT_EQ(expect_round_trip(MemoryMatrix::dense_random(33, 101, DType::kF16, 2), 1, 33), "dense f16");
  EXPECT_EQ(expect_round_trip(MemoryMatrix::dense_random(33, 64, DType::kBF16, 3), 0, 32), "dense bf16");
}

TEST(QmatmulPack, TablesAreFoundAgain) {
  const std::vector<float> e2m1 = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  const std::vector<float> iq4 = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  using quant::MatrixKind;
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE(::testing::Message() << "seed " << seed);
  EXPECT_EQ(expect_round_trip(MemoryMatrix::table_random(40, 96, MatrixKind::kMxfp4, 32, e2m1, seed), 0, 40),
            "table4 g32 scale f16");
  EXPECT_EQ(expect_round_trip(MemoryMatrix::table_random(40, 96, MatrixKind::kNvfp4, 16, e2m1, seed), 0, 40),
            "table4 g16 scale f16");
  EXPECT_EQ(expect_round_trip(MemoryMatrix::table_random(40, 96, MatrixKind::kLut4, 32, iq4, seed), 0, 40),
            "table4 g32 scale f16");
  // Values that fit no table stay dense.
  EXPECT_EQ(expect_round_trip(MemoryMatrix::table_random(40, 96, MatrixKind::kMxfp4, 32, {1, 0.7f, 5}, seed), 0, 40),
            "dense f32");
}

TEST(QmatmulPack, RefusesWhatItCannotHold) {
  const auto source = MemoryMatrix::dense_random(4, 32, DType::kF32, 1);
  for (const auto& [r0, r1] : {std::pair{-1, 2}, {2, 2}, {0, 5}}) {
    const auto packed = qmatmul_pack(source, r0, r1);
    ASSERT_FALSE(packed);
    EXPECT_EQ(packed.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST(TwoLevelSplit, EdgesOfTheByte) {
  const auto split = [](std::vector<float> values) {
    float top = 0;
    int8_t bytes[kSuperCols];
    if (!two_level_split(values, top, bytes)) return false;
    for (size_t i = 0; i < values.size(); ++i)
      if (top * static_cast<float>(bytes[i]) != values[i]) ADD_FAILURE() << "value " << i;
    return true;
  };
  const float d = f16_to_f32(0x1234);
  EXPECT_TRUE(split({-128 * d, 127 * d, 0, 1 * d}));
  EXPECT_TRUE(split({128 * d, -127 * d, 3 * d}));
  EXPECT_FALSE(split({128 * d, -128 * d, 3 * d}));
  EXPECT_FALSE(split({129 * d, d}));
  EXPECT_TRUE(split({0, 0, -0.0f}));
  EXPECT_FALSE(split({INFINITY, 1}));
  EXPECT_FALSE(split({NAN, 1}));
  EXPECT_TRUE(split({3e-45f, -1e-44f}));  // subnormal
  EXPECT_FALSE(split({1.0f, 1e-30f}));
}

}  // namespace
}  // namespace galvani::kernels
