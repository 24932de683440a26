/// Float codes in A16: every code in every place of a unit comes back by the formulas that the kernels compile, in bf16
/// and in f16; whole matrices come back bit for bit; what cannot be exact says so.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "kernel_testing.h"
#include "kernels/qmatmul/a16_float_pack.h"
#include "qmatmul_source.h"
#include "quant/sources.h"

namespace galvani::kernels {
namespace {

using quant::MatrixKind;
using testing::MemoryMatrix;

constexpr int kInstances[] = {kA16E2M1, kA16E4M3};
constexpr MatrixKind kKinds[] = {MatrixKind::kMxfp4, MatrixKind::kNvfp4, MatrixKind::kMxfp8};

float value_of(bool bf16, unsigned bits) {
  return bf16 ? bf16_to_f32(static_cast<uint16_t>(bits)) : f16_to_f32(static_cast<uint16_t>(bits));
}

/// The kernels' code of pair `pair` from its word; a template there.
template <int kInstance, bool kBf16, int kField = 0>
unsigned moved(int field, unsigned word) {
  if (field == kField) return a16_float_pair<kInstance, kBf16, kField>(word);
  if constexpr (kField + 1 < a16_float_fields(kInstance)) return moved<kInstance, kBf16, kField + 1>(field, word);
  return 0;
}
unsigned moved(int instance, bool bf16, int field, unsigned word) {
  if (instance == kA16E2M1) return bf16 ? moved<kA16E2M1, true>(field, word) : moved<kA16E2M1, false>(field, word);
  return bf16 ? moved<kA16E4M3, true>(field, word) : moved<kA16E4M3, false>(field, word);
}

float code_value(int instance, uint8_t code) {
  return instance == kA16E2M1 ? quant::kE2M1Doubled[code & 15] * 0.5f : quant::e4m3(code);
}
bool is_nan_code(int instance, int code) { return instance == kA16E4M3 && (code & 0x7f) == 0x7f; }

TEST(A16Float, EveryBitOfAUnitHasItsOwnPlaceAndTheWordsAreFull) {
  for (int instance : kInstances) {
    const int bits = a16_bits(instance);
    std::set<int> used;
    for (int row = 0; row < kA16Rows; ++row)
      for (int col = 0; col < kA16Cols; ++col)
        for (int bit = 0; bit < bits; ++bit) {
          const A16Place place = a16_place(row, col);
          const A16Bit at = a16_float_bit(instance, place.pair, place.half, bit);
          ASSERT_LT(at.word, bits);
          ASSERT_TRUE(used.insert(a16_word_at(bits, at.word, place.lane) * 8 + at.at).second) << row << ", " << col;
        }
    EXPECT_EQ(static_cast<int>(used.size()), a16_word_bytes(bits) * 8);
  }
}

TEST(A16Float, EveryCodeInEveryFieldIsExactInBf16AndF16) {
  for (int instance : kInstances)
    for (bool bf16 : {true, false})
      for (int field = 0; field < a16_float_fields(instance); ++field)
        for (int even = 0; even < 1 << a16_bits(instance); ++even)
          for (int odd : {even, (even * 37 + 11) % (1 << a16_bits(instance))}) {
            if (is_nan_code(instance, even) || is_nan_code(instance, odd)) continue;
            // Other fields hold ones: nothing of them may leak in.
            unsigned word = ~0u;
            for (int half = 0; half < 2; ++half)
              for (int bit = 0; bit < a16_bits(instance); ++bit)
                if (((half == 0 ? even : odd) >> bit & 1) == 0)
                  word &= ~(1u << a16_float_bit(instance, field, half, bit).at);
            const unsigned pair = moved(instance, bf16, field, word);
            const float multiplier = value_of(bf16, a16_float_multiplier(instance, bf16) & 0xffffu);
            EXPECT_EQ(multiplier, std::ldexp(1.0f, a16_float_exponent(instance, bf16)));
            for (int half = 0; half < 2; ++half) {
              const auto code = static_cast<uint8_t>(half == 0 ? even : odd);
              const float got = value_of(bf16, pair >> 16 * half & 0xffffu) * multiplier;
              ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(code_value(instance, code)))
                  << instance << (bf16 ? " bf16" : " f16") << " field " << field << " code " << int{code};
            }
          }
}

TEST(A16Float, EveryScaleByteIsRightInF32AndInsideItsWindowIn16Bits) {
  for (int place = 0; place < 4; ++place)
    for (unsigned byte = 1; byte < 255; ++byte) {
      const unsigned bytes = (0xa55a3cc3u & ~(255u << 8 * place)) | byte << 8 * place;
      EXPECT_EQ(std::bit_cast<float>(a16_scale_f32(A16Scale::kE8M0, bytes, place)),
                std::ldexp(1.0f, static_cast<int>(byte) - 127));
      EXPECT_EQ(std::bit_cast<float>(a16_scale_f32(A16Scale::kE5M3, bytes, place)),
                std::ldexp(1.0f + static_cast<float>(byte % 8) / 8, static_cast<int>(byte / 8) - 31));
    }
  for (int instance : kInstances)
    for (bool bf16 : {true, false}) {
      const A16Window window = a16_float_window(instance, bf16);
      const int exponent = a16_float_exponent(instance, bf16);
      for (int e = window.lowest; e <= window.highest; ++e) {
        const unsigned bits = a16_scale_16(instance, bf16, A16Scale::kE8M0, static_cast<unsigned>(e + 127));
        ASSERT_EQ(bits >> 16, bits & 0xffffu);
        ASSERT_EQ(value_of(bf16, bits & 0xffffu), std::ldexp(1.0f, e + exponent));
        for (int code = 0; code < 1 << a16_bits(instance); ++code) {
          if (is_nan_code(instance, code)) continue;
          const float weight = std::ldexp(code_value(instance, static_cast<uint8_t>(code)), e);
          ASSERT_EQ(weight, testing::round_to(bf16 ? DType::kBF16 : DType::kF16, weight)) << e << " " << code;
        }
      }
      // One step outside and f16 is no longer exact or its scale no longer finite.
      if (!bf16) {
        const float small = std::ldexp(instance == kA16E2M1 ? 0.5f : 0x1p-9f, window.lowest - 1);
        EXPECT_NE(small, testing::round_to(DType::kF16, small));
        EXPECT_GT(window.highest + 1 + exponent, 15);
      }
    }
  // nvfp4: all positive E4M3 numbers as E5M3 with 2^-8, times every E2M1 code.
  for (bool bf16 : {true, false})
    for (int file = 1; file < 0x7f; ++file) {
      const float s = quant::e4m3(static_cast<uint8_t>(file)) * 0x1p-8f;
      const int exponent = std::ilogb(s);
      const auto byte =
          static_cast<unsigned>((exponent + 31) * 8) + static_cast<unsigned>((std::ldexp(s, -exponent) - 1) * 8);
      const unsigned bits = a16_scale_16(kA16E2M1, bf16, A16Scale::kE5M3, byte);
      ASSERT_EQ(value_of(bf16, bits & 0xffffu), std::ldexp(s, a16_float_exponent(kA16E2M1, bf16))) << file;
      for (int code = 0; code < 16; ++code) {
        const float weight = s * code_value(kA16E2M1, static_cast<uint8_t>(code));
        ASSERT_EQ(weight, testing::round_to(bf16 ? DType::kBF16 : DType::kF16, weight)) << file << " " << code;
      }
    }
}

struct Packed {
  A16Format format;
  A16FloatForm form;
  std::vector<std::byte> bytes;
};
Packed pack(const quant::MatrixSource& source, int64_t r0, int64_t r1) {
  Packed p;
  p.format = a16_float_format_of(source).value();
  p.bytes.assign(static_cast<size_t>(a16_bytes(p.format, r1 - r0, source.cols())), std::byte{0xa5});
  auto form = a16_float_pack(source, r0, r1, p.bytes);
  EXPECT_TRUE(form) << form.error().message;
  if (form) p.form = *form;
  return p;
}

/// Every weight by the kernels' formulas, in f32 and (where the form says it is exact) as a 16-bit weight.
void expect_same(const quant::MatrixSource& source, const Packed& p, int64_t r0, int64_t r1) {
  const int instance = a16_instance(p.format), bits = a16_bits(instance);
  const int64_t cols = source.cols();
  std::vector<float> want(static_cast<size_t>((r1 - r0) * cols));
  ASSERT_TRUE(source.dequant_rows(r0, r1, want.data()));
  for (int64_t r = 0; r < r1 - r0; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const float w = want[static_cast<size_t>(r * cols + c)];
      const A16FloatWeight packed = a16_float_unpack(p.format, cols, p.bytes, r, c);
      ASSERT_EQ(a16_float_value(p.format, packed) * p.form.factor, double{w}) << "row " << r << " column " << c;
      const std::byte* unit = p.bytes.data() + (r / 16 * a16_units(cols) + c / 64) * a16_unit_bytes(p.format);
      const A16Place place = a16_place(static_cast<int>(r % 16), static_cast<int>(c % 64));
      const int fields = a16_float_fields(instance);
      unsigned word;
      std::memcpy(&word, unit + a16_word_at(bits, place.pair / fields, place.lane), 4);
      for (bool bf16 : {true, false}) {
        const float code =
            value_of(bf16, moved(instance, bf16, place.pair % fields, word) >> 16 * place.half & 0xffffu);
        const float multiplier = value_of(bf16, a16_float_multiplier(instance, bf16) & 0xffffu);
        const float scale = std::bit_cast<float>(a16_scale_f32(p.format.scale, packed.scale, 0));
        ASSERT_EQ(double{code * multiplier} * scale * p.form.factor, double{w}) << "row " << r << " column " << c;
        if (!(bf16 ? p.form.exact_bf16 : p.form.exact_f16)) continue;
        const unsigned scale_bits = a16_scale_16(instance, bf16, p.format.scale, packed.scale);
        const float weight = code * value_of(bf16, scale_bits & 0xffffu);  // exact in f32: eleven bits and four
        ASSERT_EQ(weight, testing::round_to(bf16 ? DType::kBF16 : DType::kF16, weight));
        ASSERT_EQ(double{weight} * p.form.factor, double{w}) << "row " << r << " column " << c;
      }
    }
}

TEST(A16FloatPack, WholeMatricesComeBackBitForBit) {
  const uint64_t seed = fresh_seed();
  for (MatrixKind kind : kKinds) {
    const bool nvfp4 = kind == MatrixKind::kNvfp4;
    // 48 rows and a tail; columns end inside a unit.
    const int64_t rows = 53, cols = nvfp4 ? 208 : 224;
    const MemoryMatrix source =
        MemoryMatrix::float_random(rows, cols, kind, nvfp4 ? -9 : -20, nvfp4 ? 8 : -2, MemoryMatrix::Codes::kUniform,
                                   seed + static_cast<uint64_t>(kind));
    for (const auto& [r0, r1] : {std::pair<int64_t, int64_t>{0, rows}, {5, 30}}) {
      SCOPED_TRACE(quant::matrix_kind_name(kind));
      const Packed p = pack(source, r0, r1);
      EXPECT_TRUE(p.form.exact_bf16 && p.form.exact_f16);
      expect_same(source, p, r0, r1);
      // Padding weighs nothing and has a scale that is finite.
      const A16FloatWeight past = a16_float_unpack(p.format, cols, p.bytes, a16_row_tiles(r1 - r0) * 16 - 1, 0);
      EXPECT_EQ(past.code, 0u);
      EXPECT_EQ(past.scale, a16_float_padding(p.format.scale));
    }
  }
}

/// A file's bytes: every code beside every scale that a file may hold.
TEST(A16FloatPack, EveryCodeTimesEveryScaleOfAFile) {
  for (MatrixKind kind : kKinds) {
    SCOPED_TRACE(quant::matrix_kind_name(kind));
    const bool mxfp8 = kind == MatrixKind::kMxfp8, nvfp4 = kind == MatrixKind::kNvfp4;
    const int group = nvfp4 ? 16 : 32, scales_end = nvfp4 ? 256 : 255;
    const int64_t cols = 256;
    for (int scale = 0; scale < scales_end; ++scale) {
      if (nvfp4 && ((scale & 0x7f) == 0x7f)) continue;
      if (mxfp8 && scale > 246) continue;  // 448 · 2^120 is beyond f32
      if (kind == MatrixKind::kMxfp4 && scale > 252) continue;
      std::vector<std::byte> codes, scales(static_cast<size_t>(cols / group), static_cast<std::byte>(scale));
      for (int i = 0; i < cols; ++i) {
        if (mxfp8) codes.push_back(static_cast<std::byte>((i & 0x7f) == 0x7f ? 0x7e : i));
        if (!mxfp8 && i % 2 == 0) codes.push_back(static_cast<std::byte>((i * 5 % 16) | ((i * 5 + 5) % 16) << 4));
      }
      const auto source = quant::make_fp_source("file", kind, {codes, nullptr}, {scales, nullptr}, 1, cols).value();
      const A16Format format = a16_float_format_of(*source).value();
      std::vector<std::byte> bytes(static_cast<size_t>(a16_bytes(format, 1, cols)));
      const auto form = a16_float_pack(*source, 0, 1, bytes);
      ASSERT_TRUE(form) << form.error().message;
      EXPECT_TRUE(form->exact_bf16);
      expect_same(*source, {format, *form, bytes}, 0, 1);
    }
  }
}

TEST(A16FloatPack, ScalesFarApartStayRightAndSayWhatIsNotExact) {
  for (MatrixKind kind : {MatrixKind::kMxfp4, MatrixKind::kMxfp8}) {
    const MemoryMatrix wide =
        MemoryMatrix::float_random(32, 256, kind, -50, -4, MemoryMatrix::Codes::kUniform, fresh_seed());
    const Packed p = pack(wide, 0, 32);
    EXPECT_TRUE(p.form.exact_bf16);
    EXPECT_FALSE(p.form.exact_f16);
    expect_same(wide, p, 0, 32);
    const MemoryMatrix wider =
        MemoryMatrix::float_random(32, 256, kind, -100, 100, MemoryMatrix::Codes::kUniform, fresh_seed());
    std::vector<std::byte> bytes(p.bytes.size());
    const auto refused = a16_float_pack(wider, 0, 32, bytes);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(refused.error().message.find("do not fit into one byte"), std::string::npos) << refused.error().message;
    // Scales as a model has them need no factor of their own in mxfp4 and the same one in all of mxfp8.
    for (int highest : {-8, -6, -3})
      EXPECT_EQ(pack(MemoryMatrix::float_random(32, 256, kind, highest - 5, highest, MemoryMatrix::Codes::kUniform,
                                                fresh_seed()),
                     0, 32)
                    .form.factor,
                kind == MatrixKind::kMxfp4 ? 1.0f : 0x1p-8f);
  }
}

TEST(A16FloatPack, RefusesWhatIsNoFloatCode) {
  MemoryMatrix source =
      MemoryMatrix::float_random(16, 64, MatrixKind::kMxfp4, -4, -4, MemoryMatrix::Codes::kUniform, 1);
  std::vector<std::byte> bytes(static_cast<size_t>(a16_bytes(kA16Mxfp4, 16, 64)));
  EXPECT_EQ(bytes.size(), 544u);
  source.values_[70] = std::numeric_limits<float>::quiet_NaN();
  auto refused = a16_float_pack(source, 0, 16, bytes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(refused.error().message.find("row 1, columns 0 to 31"), std::string::npos) << refused.error().message;
  source.values_[70] = 0.3f;
  refused = a16_float_pack(source, 0, 16, bytes);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
  std::vector<std::byte> small(543);
  EXPECT_FALSE(a16_float_pack(source, 0, 16, small));
  EXPECT_FALSE(a16_float_pack(source, 0, 17, bytes));
  const MemoryMatrix dense = MemoryMatrix::dense_random(16, 64, DType::kBF16, 1);
  EXPECT_EQ(a16_float_format_of(dense).error().code, ErrorCode::kUnsupported);
  static_assert(a16_unit_bytes(kA16Nvfp4) == 576 && a16_unit_bytes(kA16Mxfp8) == 1056);
}

}  // namespace
}  // namespace galvani::kernels
