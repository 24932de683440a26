#pragma once
/// The packed form that all arms of qmatmul share.
///
/// Rows are cut into blocks of 16 and each block's bytes are contiguous, so that a thread reads one linear stream.
/// Inside a block a 64-byte vector always means 16 rows × 2 columns: 16-bit word 2·r + p belongs to row r and column
/// 2·s + p of "slot" s (a slot is a pair of columns). So a lane is a row, no sum ever crosses lanes, a slot is the
/// operand that vdpbf16ps and tdpbf16ps want, and x enters as a broadcast pair.
///
/// Codes: 32 columns (16 slots) are a "unit" of `bits` vectors, V[0] … V[bits-1]. In one word:
///   2, 4, 8 bits: 8, 4, 2 codes, slot s in V[s / per], lowest first;
///   3, 5 bits: 5, 3 codes a word, slots 0…14 as above; bit i of slot 15 is bit 15 of V[i];
///   6 bits: per 8 slots three vectors A, B, C of two codes each (slots 0…5); slot 6 = A's top 4 bits, then bits 12–13
///   of C; slot 7 = B's top 4 bits, then bits 14–15 of C.
/// Affine codes are stored as signed numbers q − 2^(bits−1), two's complement, which centres them.
/// Scales and biases lie in a buffer of their own, block by block, group by group, 16 rows side by side.
/// Dense: kBF16 is slots of pairs; kF16 and kF32 are columns of 16.
#include <cstdint>

#include "kernels/common/large_pages.h"
#include "kernels/qmatmul/qmatmul.h"

namespace galvani::kernels {

constexpr int64_t kBlockRows = 16, kUnitCols = 32, kUnitSlots = 16, kSuperCols = 256;

/// How scales or biases are stored. kTwoLevel: a signed byte a group times one f32 per 256 columns (GGUF K-quants are
/// made like that), exact because the product is.
enum class ScaleForm : uint8_t { kNone, kF16, kBF16, kF32, kTwoLevel };
const char* scale_form_name(ScaleForm form);
/// Bytes of one value of `form`, the super-scales not counted.
constexpr int64_t scale_form_bytes(ScaleForm form) {
  switch (form) {
    case ScaleForm::kNone: return 0;
    case ScaleForm::kF16:
    case ScaleForm::kBF16: return 2;
    case ScaleForm::kF32: return 4;
    case ScaleForm::kTwoLevel: return 1;
  }
  return 0;
}

/// Where slot s of a unit sits: vector index and bit shift; slots with pieces (see above) are not covered.
constexpr int slot_vector(int bits, int s) {
  switch (bits) {
    case 3: return s / 5;
    case 5: return s / 3;
    case 6: return s / 8 * 3 + s % 8 / 2;
    default: return s / (16 / bits);
  }
}
constexpr int slot_shift(int bits, int s) {
  switch (bits) {
    case 3: return s % 5 * 3;
    case 5: return s % 3 * 5;
    case 6: return s % 8 % 2 * 6;
    default: return s % (16 / bits) * bits;
  }
}
constexpr bool slot_in_pieces(int bits, int s) {
  return (bits == 3 || bits == 5) ? s == 15 : (bits == 6 && s % 8 >= 6);
}

/// A code of a unit, scalar: `words` points at word (row, parity) of V[0]; V[i] is 32·i words further.
uint32_t unit_get(const uint16_t* words, int bits, int slot);

struct PackedMatrix final : CpuMatrix {
  PackKind kind = PackKind::kAffine;
  int bits = 0, group = 0;  ///< of codes; 0 for dense
  ScaleForm scale_form = ScaleForm::kNone, bias_form = ScaleForm::kNone;
  /// w = scale · (code + zero) + bias with the signed code; 0 when there is no bias, else 2^(bits-1).
  float zero = 0;
  int8_t table[16] = {};  ///< kTable4: w = scale · table[code]
  int64_t padded_cols = 0, units = 0, groups = 0, blocks = 0;
  int64_t block_bytes = 0, block_scale_bytes = 0;
  /// Offsets in a block's scales.
  int64_t scale_at = 0, scale_super_at = 0, bias_at = 0, bias_super_at = 0;
  LargePageBuffer data, scales;

  const std::byte* block(int64_t i) const { return data.data() + i * block_bytes; }
  /// The scales that belong to a block of data.
  const std::byte* scales_of(const std::byte* of_block) const {
    return scales.data() + (of_block - data.data()) / block_bytes * block_scale_bytes;
  }
  std::byte* block(int64_t i) { return data.data() + i * block_bytes; }
  std::byte* block_scales(int64_t i) { return scales.data() + i * block_scale_bytes; }

  /// Sizes and buffer of the codes or elements, from kind, bits, group, rows and cols.
  void allocate_data();
  /// Offsets and buffer of the scales, from their forms as well; zeroed. Sets packed_bytes.
  void allocate_scales();
};

/// Scale (or bias) of `row` and `group` in a block's scales, scalar.
float packed_scale(const PackedMatrix& w, const std::byte* scales, bool bias, int64_t group, int row);

}  // namespace galvani::kernels
