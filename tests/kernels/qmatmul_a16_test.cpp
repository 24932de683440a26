/// The A16 packing: every width × group × scale type goes there and back bit for bit, from position-coded and from
/// random codes, and no two bits share a place.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "kernel_testing.h"
#include "kernels/qmatmul/a16_pack.h"
#include "kernels/qmatmul/a16_pack_lane.h"
#include "qmatmul_source.h"

namespace galvani::kernels {
namespace {

using testing::MemoryMatrix;
using testing::Scales;

constexpr int kWidths[] = {2, 3, 4, 5, 6, 8};
constexpr int kGroups[] = {16, 32, 64, 128};
constexpr DType kTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

TEST(A16Layout, EveryBitOfAUnitHasItsOwnPlaceAndTheWordsAreFull) {
  for (int bits : kWidths) {
    std::set<int> used;
    for (int row = 0; row < kA16Rows; ++row)
      for (int col = 0; col < kA16Cols; ++col)
        for (int bit = 0; bit < bits; ++bit) {
          const A16Place place = a16_place(row, col);
          const A16Bit at = a16_bit(bits, place.pair, place.half, bit);
          ASSERT_LT(at.word, bits);
          const int offset = a16_word_at(bits, at.word, place.lane);
          ASSERT_TRUE(offset >= 0 && offset < a16_word_bytes(bits));
          ASSERT_TRUE(used.insert(offset * 8 + at.at).second) << bits << " bits, row " << row << " column " << col;
        }
    EXPECT_EQ(static_cast<int>(used.size()), a16_word_bytes(bits) * 8) << bits;
  }
}

TEST(A16Layout, TheFourBitUnitIsTheFragmentOrderOfM16N8K16) {
  static_assert(a16_unit_bytes({4, 64, A16Scale::kBF16}) == 576);
  static_assert(a16_unit_bytes({2, 128, A16Scale::kF16}) == 256 + 64);
  static_assert(a16_unit_bytes({8, 16, A16Scale::kF32}) == 1024 + 512);
  // PTX ISA: of A, groupID = lane / 4, a0,a1: row groupID, a2,a3: row groupID + 8; columns (lane % 4)·2 + (i & 1), + 8
  // from a4 on. So row 3, column 16 + 9 belongs to lane 12, k16 step 1, register 2, upper half.
  const A16Place place = a16_place(3, 25);
  EXPECT_EQ(place.lane, 12);
  EXPECT_EQ(place.pair, 4 + 2);
  EXPECT_EQ(place.half, 1);
  EXPECT_EQ(a16_place(11, 25).pair, 4 + 3);
  // Field 0 stands on the top mantissa bits of a packed bf16 pair.
  EXPECT_EQ(a16_bit(4, 0, 0, 0).at, 3);
  EXPECT_EQ(a16_bit(4, 0, 1, 3).at, 22);
  EXPECT_EQ(a16_bit(4, 3, 1, 1).at, 0);  // the last field wraps around
}

void expect_same(const MemoryMatrix& source, const A16Format& format, std::span<const std::byte> packed, int64_t r0,
                 int64_t r1) {
  const int64_t cols = source.cols(), groups = cols / source.group();
  const auto bits_of = [&](float value) -> uint32_t {
    if (format.scale == A16Scale::kF32) return std::bit_cast<uint32_t>(value);
    return format.scale == A16Scale::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
  };
  for (int64_t r = r0; r < r1; ++r)
    for (int64_t c = 0; c < cols; ++c) {
      const A16Weight w = a16_unpack(format, cols, packed, r - r0, c);
      const auto g = static_cast<size_t>(r * groups + c / source.group());
      ASSERT_EQ(w.code, source.codes_[static_cast<size_t>(r * cols + c)]) << "row " << r << " column " << c;
      ASSERT_EQ(w.scale_bits, bits_of(source.scales_[g])) << "row " << r << " column " << c;
      ASSERT_EQ(w.bias_bits, bits_of(source.biases_[g])) << "row " << r << " column " << c;
    }
}

TEST(A16Pack, EveryFormatComesBackBitForBit) {
  const uint64_t seed = fresh_seed();
  for (int bits : kWidths)
    for (int group : kGroups)
      for (DType type : kTypes) {
        SCOPED_TRACE(::testing::Message() << bits << " bits, group " << group << ", " << dtype_name(type));
        // 48 rows and a tail; columns end inside a unit where the group allows it.
        const int64_t rows = 53, cols = group < 64 ? 64 * 3 + 32 : group * 3;
        const MemoryMatrix source = MemoryMatrix::affine_random(rows, cols, bits, group, type, Scales::kFree,
                                                                seed + static_cast<uint64_t>(bits));
        const A16Format format = a16_format_of(source).value();
        EXPECT_EQ(a16_unit_bytes(format) % 16, 0);
        for (const auto& [r0, r1] : {std::pair<int64_t, int64_t>{0, rows}, {5, 30}}) {
          std::vector<std::byte> packed(static_cast<size_t>(a16_bytes(format, r1 - r0, cols)), std::byte{0xa5});
          const Status status = a16_pack(source, r0, r1, packed);
          ASSERT_TRUE(status) << status.error().message;
          expect_same(source, format, packed, r0, r1);
          // Padding weighs nothing: rows and columns past the end have scale and bias 0.
          const A16Weight past = a16_unpack(format, cols, packed, a16_row_tiles(r1 - r0) * kA16Rows - 1, 0);
          EXPECT_EQ(past.code | past.scale_bits | past.bias_bits, 0u);
        }
      }
}

TEST(A16Pack, PositionCodedCodesLandWhereTheySay) {
  for (int bits : kWidths) {
    MemoryMatrix source = MemoryMatrix::affine_random(32, 128, bits, 64, DType::kF16, Scales::kFree, 1);
    for (int shift = 0; shift < 12; shift += bits) {  // 12 bits: 32 rows × 128 columns
      for (int64_t r = 0; r < 32; ++r)
        for (int64_t c = 0; c < 128; ++c)
          source.codes_[static_cast<size_t>(r * 128 + c)] =
              static_cast<uint8_t>(((r * 128 + c) >> shift) & ((1 << bits) - 1));
      const A16Format format = a16_format_of(source).value();
      std::vector<std::byte> packed(static_cast<size_t>(a16_bytes(format, 32, 128)));
      ASSERT_TRUE(a16_pack(source, 0, 32, packed));
      expect_same(source, format, packed, 0, 32);
    }
  }
}

TEST(A16Pack, DequantisesLikeTheSource) {
  const MemoryMatrix source = MemoryMatrix::affine_random(19, 256, 5, 32, DType::kF16, Scales::kFree, fresh_seed());
  const A16Format format = a16_format_of(source).value();
  std::vector<std::byte> packed(static_cast<size_t>(a16_bytes(format, 19, 256)));
  ASSERT_TRUE(a16_pack(source, 0, 19, packed));
  std::vector<float> got(19 * 256), want(19 * 256);
  a16_dequant_rows(format, 256, packed, 0, 19, got.data());
  ASSERT_TRUE(source.dequant_rows(0, 19, want.data()));
  EXPECT_EQ(got, want);
}

TEST(A16Pack, RefusesWhatItCannotHold) {
  const MemoryMatrix dense = MemoryMatrix::dense_random(16, 64, DType::kBF16, 1);
  EXPECT_EQ(a16_format_of(dense).error().code, ErrorCode::kUnsupported);
  const MemoryMatrix source = MemoryMatrix::affine_random(16, 64, 4, 64, DType::kBF16, Scales::kFree, 1);
  std::vector<std::byte> small(575);
  const Status status = a16_pack(source, 0, 16, small);
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("576"), std::string::npos) << status.error().message;
  EXPECT_FALSE(a16_pack(source, 0, 17, small));
}

/// What a16_pack.cuh's warps do, lane by lane.
template <int kBits>
void pack_by_lanes(const A16PackArgs& args) {
  for (int tile = 0; tile < args.row_tiles; ++tile)
    for (int u = 0; u < args.units; ++u) {
      unsigned char* unit = args.out + (int64_t{tile} * args.units + u) * args.unit_bytes;
      for (int lane = 0; lane < kA16Lanes; ++lane) {
        unsigned words[kBits];
        a16_lane_words<kBits>(words, args, tile, u, lane);
        for (int w = 0; w < kBits; ++w) std::memcpy(unit + a16_word_at(kBits, w, lane), &words[w], 4);
      }
      const auto value = static_cast<size_t>(args.value_bytes);
      for (int p = 0; p < kA16Rows * args.subgroups; ++p) {
        unsigned char* pair = unit + a16_word_bytes(kBits) + 2 * value * static_cast<size_t>(p);
        std::memset(pair, 0, 2 * value);
        const int64_t from = a16_pair_source(args, tile, u, p);
        if (from < 0) continue;
        const auto at = static_cast<size_t>(from) * value;
        std::memcpy(pair, static_cast<const char*>(args.scales) + at, value);
        std::memcpy(pair + value, static_cast<const char*>(args.biases) + at, value);
      }
    }
}

void pack_by_lanes(int bits, const A16PackArgs& args) {
  switch (bits) {
    case 2: return pack_by_lanes<2>(args);
    case 3: return pack_by_lanes<3>(args);
    case 4: return pack_by_lanes<4>(args);
    case 5: return pack_by_lanes<5>(args);
    case 6: return pack_by_lanes<6>(args);
    default: return pack_by_lanes<8>(args);
  }
}

// The device's packing, run here: every byte is a16_pack's, tiles and units that are not full included.
TEST(A16Pack, LanesGiveTheSameBytes) {
  uint64_t seed = 1;
  for (const int bits : kWidths)
    for (const int group : kGroups)
      for (const DType type : kTypes)
        for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{16, 128}, {35, 384}, {1, 640}}) {
          const MemoryMatrix source = MemoryMatrix::affine_random(rows, cols, bits, group, type, Scales::kFree, ++seed);
          const auto format = a16_format_of(source);
          ASSERT_TRUE(format.has_value());
          std::vector<std::byte> wanted(static_cast<size_t>(a16_bytes(*format, rows, cols))), got(wanted.size());
          ASSERT_TRUE(a16_pack(source, 0, rows, wanted).has_value());
          const auto tensor = source.affine(0, rows, 0, cols);
          ASSERT_TRUE(tensor.has_value());
          A16PackArgs args = a16_pack_args(*format, static_cast<int>(rows), static_cast<int>(cols));
          std::vector<unsigned> codes(static_cast<size_t>(rows) * static_cast<size_t>(args.row_words));
          std::memcpy(codes.data(), tensor->view.codes, codes.size() * 4);
          args.codes = codes.data(), args.scales = tensor->view.scales, args.biases = tensor->view.biases;
          args.out = reinterpret_cast<unsigned char*>(got.data());
          pack_by_lanes(bits, args);
          ASSERT_EQ(got, wanted) << bits << " bits, group " << group << ", " << rows << " x " << cols;
        }
}

}  // namespace
}  // namespace galvani::kernels
