#pragma once
/// A16: how quantized weights lie in GPU memory for every tensor-core kernel from sm_75 up. Pure constexpr, no
/// includes, so that host code, device code and NVRTC share one table.
///
/// A unit is 16 rows × 64 columns: code words, then the (scale, bias) pairs of those columns. Units of one row tile
/// follow each other along k, row tiles follow each other; rows are padded to 16 and columns to 64 with code, scale and
/// bias 0. Any unit boundary is a legal cut point for several ranks: rows at multiples of 16, columns at multiples of
/// max(64, group).
///
/// Words: lane l = 4·(row % 8) + (column % 8) / 2 owns 32 codes of a unit as 16 pairs; a pair is one A register of
/// mma m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"): pair 4j + r of k16 step j is register r =
/// 2·(column % 16 / 8) + row / 8, its halves the even and the odd column. Inside a 32-bit word the two codes of a pair
/// stand 16 bits apart at p and p + 16 (mod 32), p = 7 - bits + bits·field: field 0 falls on the top mantissa bits of
/// two packed bf16, every other field on the same bits after one rotation, so that `rotate, (w & mask) | magic` gives
/// 2^bits + code exactly, for f16 three bits further up. At 2 bits p = 3 + 2·field: two fields fall on the mantissa at
/// once, those of one parity on its top bits, the others below. What 16 / bits leaves over of each half carries the
/// rest of the 16 pairs in pieces (a16_bit). 8-bit codes are plain bytes at 0, 16, 8, 24.
///
/// Pairs: per subgroup of min(group, 64) columns, row % 8 major, row / 8 minor, {scale, bias} of `scale` type: one lane
/// reads both of its rows at once. A group of 128 repeats its pair in both units.
///
/// Float codes (a16_float.h) have words of the same size, with bits in an order of their own, and one byte a group
/// instead of a pair: row % 8 major, then subgroup, then row / 8, so that one lane reads all of its scales at once.

namespace galvani::kernels {

/// Goes up whenever a byte of the layout moves.
constexpr int kA16Version = 2;
constexpr int kA16Rows = 16, kA16Cols = 64, kA16Lanes = 32, kA16Pairs = 16;

/// The last two belong to float codes: a power of two, and 2^(E - 31) · (1 + m / 8) from five and three bits.
enum class A16Scale : unsigned char { kBF16, kF16, kF32, kE8M0, kE5M3 };
enum class A16Code : unsigned char { kAffine, kE2M1, kE4M3 };

struct A16Format {
  int bits = 4;    ///< 2, 3, 4, 5, 6, 8
  int group = 64;  ///< 16, 32, 64, 128 columns
  A16Scale scale = A16Scale::kBF16;
  A16Code code = A16Code::kAffine;
  bool operator==(const A16Format&) const = default;
};
constexpr A16Format kA16Mxfp4{4, 32, A16Scale::kE8M0, A16Code::kE2M1};
constexpr A16Format kA16Nvfp4{4, 16, A16Scale::kE5M3, A16Code::kE2M1};
constexpr A16Format kA16Mxfp8{8, 32, A16Scale::kE8M0, A16Code::kE4M3};

constexpr bool a16_is_float(A16Scale scale) { return scale == A16Scale::kE8M0 || scale == A16Scale::kE5M3; }

constexpr bool a16_valid(const A16Format& f) {
  if (f.code != A16Code::kAffine) return f == kA16Mxfp4 || f == kA16Nvfp4 || f == kA16Mxfp8;
  return !a16_is_float(f.scale) && f.bits >= 2 && f.bits <= 8 && f.bits != 7 &&
         (f.group == 16 || f.group == 32 || f.group == 64 || f.group == 128);
}

/// Scale/bias pairs a row has in one unit.
constexpr int a16_subgroups(int group) { return group >= kA16Cols ? 1 : kA16Cols / group; }
/// Of a pair; of float codes' scale, which has no bias beside it.
constexpr int a16_pair_bytes(A16Scale scale) { return a16_is_float(scale) ? 1 : scale == A16Scale::kF32 ? 8 : 4; }
constexpr int a16_word_bytes(int bits) { return kA16Lanes * 4 * bits; }
constexpr int a16_scale_bytes(const A16Format& f) {
  return kA16Rows * a16_subgroups(f.group) * a16_pair_bytes(f.scale);
}
/// 576 at 4 bits, group 64, bf16. A multiple of 16 in every format.
constexpr int a16_unit_bytes(const A16Format& f) { return a16_word_bytes(f.bits) + a16_scale_bytes(f); }

constexpr long long a16_row_tiles(long long rows) { return (rows + kA16Rows - 1) / kA16Rows; }
constexpr long long a16_units(long long cols) { return (cols + kA16Cols - 1) / kA16Cols; }
constexpr long long a16_bytes(const A16Format& f, long long rows, long long cols) {
  return a16_row_tiles(rows) * a16_units(cols) * a16_unit_bytes(f);
}

/// Whole codes that fit into each half of a word.
constexpr int a16_fields(int bits) { return 16 / bits; }
/// Where field `f`'s even code begins in its word; its odd code begins 16 bits further, both modulo 32.
constexpr int a16_field_at(int bits, int f) { return (bits == 8 ? 0 : bits == 2 ? 3 : 7 - bits) + bits * f; }

struct A16Bit {
  int word = 0;  ///< of the lane's `bits` words
  int at = 0;    ///< bit 0…31
};

/// Bit `bit` of the code in half `half` of pair `pair`.
constexpr A16Bit a16_bit(int bits, int pair, int half, int bit) {
  const int fields = a16_fields(bits), whole = fields * bits;
  A16Bit place;
  if (pair < whole) {
    place.word = pair / fields;
    place.at = a16_field_at(bits, pair % fields) + bit;
  } else {
    const int spare = a16_field_at(bits, fields);  // first bit that the whole fields leave over
    if (bits == 6) {                               // two pairs in the spare nibbles of three words
      const int base = (pair - whole) / 2 * 3, second = (pair - whole) % 2;
      place.word = base + (bit >= 4 ? 1 : 2 * second);
      place.at = spare + (bit >= 4 ? bit - 4 + 2 * second : bit);
    } else {  // 3 and 5 bits: one pair, one bit in each word
      place.word = bit;
      place.at = spare;
    }
  }
  place.at = (place.at + 16 * half) % 32;
  return place;
}

/// Byte offset in the unit of word `word` of `lane`: words lie in planes of four, two and one a lane, so that a lane
/// loads 16, 8 and 4 bytes at a time.
constexpr int a16_word_at(int bits, int word, int lane) {
  int first = 0;
  for (int width = 4; width >= 1; width /= 2) {
    while (bits - first >= width) {
      if (word < first + width) return kA16Lanes * 4 * first + (lane * width + word - first) * 4;
      first += width;
    }
  }
  return -1;
}

struct A16Place {
  int lane = 0, pair = 0, half = 0;
};
/// Where the code of (row, column) of a unit lives.
constexpr A16Place a16_place(int row, int col) {
  const int in_step = col % 16;
  return {row % 8 * 4 + in_step % 8 / 2, col / 16 * 4 + in_step / 8 * 2 + row / 8, in_step % 2};
}

/// Byte offset in the unit of the pair of (row, column).
constexpr int a16_scale_at(const A16Format& f, int row, int col) {
  const int subgroup = col * a16_subgroups(f.group) / kA16Cols;
  if (a16_is_float(f.scale))
    return a16_word_bytes(f.bits) + (row % 8 * a16_subgroups(f.group) + subgroup) * 2 + row / 8;
  return a16_word_bytes(f.bits) + ((subgroup * 8 + row % 8) * 2 + row / 8) * a16_pair_bytes(f.scale);
}

}  // namespace galvani::kernels
