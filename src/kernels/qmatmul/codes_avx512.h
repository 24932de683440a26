#pragma once
/// AVX-512 helpers of the bf16 arms: codes of a slot as pairs of bf16 by table look-up, scales as f32 lanes.
/// Every function carries its target, so that the file needs no compiler flag and leaks no instruction elsewhere.
#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// g++ 12's own headers initialise undefined vectors from themselves (GCC bug 105593).
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>

#include "core/dtype.h"
#include "kernels/qmatmul/packed.h"

#define GALVANI_AVX512BF16 __attribute__((target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))
#define GALVANI_AVX512BF16_INLINE \
  static inline __attribute__((always_inline, target("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl,avx512bf16")))

namespace galvani::kernels {

/// bf16 values of codes, as stored (centred) or with w.zero added. vpermw reads the low 5 bits of each index word,
/// vpermi2w the low 6; so a table that repeats lets whatever lies above the code stay. 8-bit codes take two tables, one
/// a nibble, whose values add up.
struct CodeTables {
  __m512i low, high;
};

GALVANI_AVX512BF16_INLINE CodeTables make_code_tables(const PackedMatrix& w, bool add_zero) {
  alignas(64) uint16_t low[32], high[32];
  const int bits = w.bits, half = bits == 8 ? 0 : 1 << (bits - 1);
  for (int i = 0; i < 32; ++i) {
    const int code = bits <= 5 ? i & ((1 << bits) - 1) : i;
    int value = (code ^ half) - half, value_high = ((i + 32) ^ half) - half;
    if (bits == 8) value = i & 15, value_high = (((i & 15) ^ 8) - 8) * 16;
    if (w.kind == PackKind::kTable4) value = w.table[i & 15];
    if (add_zero) (bits == 8 ? value_high : value) += static_cast<int>(w.zero);
    if (add_zero && bits == 6) value_high += static_cast<int>(w.zero);
    low[i] = f32_to_bf16(static_cast<float>(value)), high[i] = f32_to_bf16(static_cast<float>(value_high));
  }
  return {_mm512_load_si512(low), _mm512_load_si512(high)};
}

/// Words whose low bits are the codes of slot kSlot (see packed.h); higher bits are anything.
template <int kBits, int kSlot>
GALVANI_AVX512BF16_INLINE __m512i slot_index(const __m512i* v) {
  if constexpr (!slot_in_pieces(kBits, kSlot)) {
    constexpr int kShift = slot_shift(kBits, kSlot);
    const __m512i word = v[slot_vector(kBits, kSlot)];
    return kShift == 0 ? word : _mm512_srli_epi16(word, kShift);
  } else if constexpr (kBits == 6) {
    constexpr int kFirst = kSlot / 8 * 3, kLast = kSlot % 8 - 6;
    const __m512i low = _mm512_srli_epi16(v[kFirst + kLast], 12);
    const __m512i high = _mm512_srli_epi16(v[kFirst + 2], 8 + 2 * kLast);
    return _mm512_ternarylogic_epi32(_mm512_set1_epi16(0x30), high, low, 0xca);  // mask ? high : low
  } else {
    __m512i code = _mm512_srli_epi16(v[0], 15);
    code = _mm512_ternarylogic_epi32(_mm512_set1_epi16(2), _mm512_srli_epi16(v[1], 14), code, 0xca);
    code = _mm512_ternarylogic_epi32(_mm512_set1_epi16(4), _mm512_srli_epi16(v[2], 13), code, 0xca);
    if constexpr (kBits == 5) {
      code = _mm512_ternarylogic_epi32(_mm512_set1_epi16(8), _mm512_srli_epi16(v[3], 12), code, 0xca);
      code = _mm512_ternarylogic_epi32(_mm512_set1_epi16(16), _mm512_srli_epi16(v[4], 11), code, 0xca);
    }
    return code;
  }
}

/// bf16 pairs of slot kSlot; for 8 bits the low nibble's share (slot_high gives the rest).
template <int kBits, int kSlot>
GALVANI_AVX512BF16_INLINE __m512i slot_low(const CodeTables& tables, const __m512i* v) {
  const __m512i index = slot_index<kBits, kSlot>(v);
  if constexpr (kBits == 6) return _mm512_permutex2var_epi16(tables.low, index, tables.high);
  return _mm512_permutexvar_epi16(index, tables.low);
}

template <int kSlot>
GALVANI_AVX512BF16_INLINE __m512i slot_high8(const CodeTables& tables, const __m512i* v) {
  return _mm512_permutexvar_epi16(_mm512_srli_epi16(v[slot_vector(8, kSlot)], slot_shift(8, kSlot) + 4), tables.high);
}

/// 16 rows' values of group `group`.
GALVANI_AVX512BF16_INLINE __m512 load_scales(ScaleForm form, const std::byte* at, const std::byte* super, int64_t group,
                                             int64_t super_index) {
  const int64_t index = group * kBlockRows;
  switch (form) {
    case ScaleForm::kF16: return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + index * 2)));
    case ScaleForm::kBF16:
      return _mm512_castsi512_ps(_mm512_slli_epi32(
          _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(at + index * 2))), 16));
    case ScaleForm::kF32: return _mm512_loadu_ps(at + index * 4);
    case ScaleForm::kTwoLevel: {
      const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(at + index));
      return _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)),
                           _mm512_loadu_ps(super + super_index * kBlockRows * 4));
    }
    case ScaleForm::kNone: break;
  }
  return _mm512_setzero_ps();
}

/// Scales and biases of one block.
struct BlockScales {
  const PackedMatrix& w;
  const std::byte* scales;  ///< of the block
  GALVANI_AVX512BF16_INLINE __m512 load(const BlockScales& s, bool bias, int64_t group) {
    const int64_t super = group * s.w.group / kSuperCols;
    return bias ? load_scales(s.w.bias_form, s.scales + s.w.bias_at, s.scales + s.w.bias_super_at, group, super)
                : load_scales(s.w.scale_form, s.scales + s.w.scale_at, s.scales + s.w.scale_super_at, group, super);
  }
};

}  // namespace galvani::kernels
#endif
