/// Many tokens on CPUs with AVX512_BF16: panels of bf16 pairs, 8 tokens × 48 rows of f32 sums in 24 registers.
#include "kernels/qmatmul/codes_avx512.h"
#include "kernels/qmatmul/panel_bf16.h"

namespace galvani::kernels {
#if defined(__x86_64__)
namespace {

constexpr int kTile = 8, kBlocks = 3;

/// Rounds two vectors to bf16 and interleaves them: word 2·lane + p.
GALVANI_AVX512BF16_INLINE __m512i interleave_bf16(__m512 even, __m512 odd, __m512i order) {
  return _mm512_permutexvar_epi16(order, reinterpret_cast<__m512i>(_mm512_cvtne2ps_pbh(odd, even)));
}

GALVANI_AVX512BF16_INLINE __m512i interleave_order() {
  alignas(64) uint16_t order[32];
  for (int i = 0; i < 32; ++i) order[i] = static_cast<uint16_t>(i / 2 + i % 2 * 16);
  return _mm512_load_si512(order);
}

GALVANI_AVX512BF16_INLINE __m512 even_of(__m512i pairs) { return _mm512_castsi512_ps(_mm512_slli_epi32(pairs, 16)); }
GALVANI_AVX512BF16_INLINE __m512 odd_of(__m512i pairs) {
  return _mm512_castsi512_ps(_mm512_and_si512(pairs, _mm512_set1_epi32(static_cast<int>(0xffff0000u))));
}

template <int kBits, bool kGroup16, int kSlot>
GALVANI_AVX512BF16_INLINE void store_slots(const CodeTables& tables, const __m512i* v, const __m512* scale,
                                           const __m512* shift, __m512i order, uint16_t* out) {
  if constexpr (kSlot < kUnitSlots) {
    constexpr int kGroup = kGroup16 ? kSlot / 8 : 0;
    const __m512i pairs = slot_low<kBits, kSlot>(tables, v);
    __m512 even = even_of(pairs), odd = odd_of(pairs);
    if constexpr (kBits == 8) {
      const __m512i high = slot_high8<kSlot>(tables, v);
      even = _mm512_add_ps(even, even_of(high)), odd = _mm512_add_ps(odd, odd_of(high));
    }
    // The codes are exact here, so that the value before rounding to bf16 is the stored one.
    even = _mm512_fmadd_ps(even, scale[kGroup], shift[kGroup]);
    odd = _mm512_fmadd_ps(odd, scale[kGroup], shift[kGroup]);
    _mm512_store_si512(out + kSlot * 32, interleave_bf16(even, odd, order));
    store_slots<kBits, kGroup16, kSlot + 1>(tables, v, scale, shift, order, out);
  }
}

template <int kBits, bool kGroup16>
GALVANI_AVX512BF16 void unpack_codes(const PackedMatrix& w, const std::byte* block, int64_t k0, int64_t k1,
                                     uint16_t* out) {
  const CodeTables tables = make_code_tables(w, true);
  const BlockScales scales{w, w.scales_of(block)};
  const __m512i order = interleave_order();
  for (int64_t u = k0 / kUnitCols; u < k1 / kUnitCols; ++u, out += kUnitCols * kBlockRows) {
    __m512i v[kBits];
    for (int i = 0; i < kBits; ++i) v[i] = _mm512_load_si512(block + (u * kBits + i) * 64);
    __m512 scale[2], shift[2];
    for (int i = 0; i < (kGroup16 ? 2 : 1); ++i) {
      const int64_t group = kGroup16 ? 2 * u + i : u * kUnitCols / w.group;
      scale[i] = BlockScales::load(scales, false, group);
      shift[i] = w.bias_form == ScaleForm::kNone ? _mm512_setzero_ps() : BlockScales::load(scales, true, group);
    }
    store_slots<kBits, kGroup16, 0>(tables, v, scale, shift, order, out);
  }
}

template <int kBits>
GALVANI_AVX512BF16 void unpack_codes_any(const PackedMatrix& w, const std::byte* block, int64_t k0, int64_t k1,
                                         uint16_t* out) {
  w.group == 16 ? unpack_codes<kBits, true>(w, block, k0, k1, out) : unpack_codes<kBits, false>(w, block, k0, k1, out);
}

GALVANI_AVX512BF16 void unpack_dense(const PackedMatrix& w, const std::byte* block, int64_t k0, int64_t k1,
                                     uint16_t* out) {
  const __m512i order = interleave_order();
  for (int64_t k = k0; k < k1; k += 2, out += 32) {
    __m512 pair[2];
    for (int i = 0; i < 2; ++i) {
      const int64_t index = (k + i) * kBlockRows;
      pair[i] = w.kind == PackKind::kF32
                    ? _mm512_loadu_ps(block + index * 4)
                    : _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(block + index * 2)));
    }
    _mm512_store_si512(out, interleave_bf16(pair[0], pair[1], order));
  }
}

/// tile[t, 16·b …] = Σ_k x[t, k] · panels[b][k, …].
template <int kUsed>
GALVANI_AVX512BF16 void multiply(const uint16_t* x, int64_t stride, const uint16_t* const* panels, int64_t cols,
                                 float* tile) {
  __m512 sums[kTile][kUsed];
  for (int t = 0; t < kTile; ++t)
    for (int i = 0; i < kUsed; ++i) sums[t][i] = _mm512_setzero_ps();
  for (int64_t pair = 0; pair < cols / 2; ++pair) {
    __m512bh w[kUsed];
    for (int i = 0; i < kUsed; ++i) w[i] = reinterpret_cast<__m512bh>(_mm512_load_si512(panels[i] + pair * 32));
#pragma GCC unroll 8
    for (int t = 0; t < kTile; ++t) {
      int values;
      __builtin_memcpy(&values, x + t * stride + pair * 2, 4);
      const auto value = reinterpret_cast<__m512bh>(_mm512_set1_epi32(values));
      for (int i = 0; i < kUsed; ++i) sums[t][i] = _mm512_dpbf16_ps(sums[t][i], w[i], value);
    }
  }
  for (int t = 0; t < kTile; ++t)
    for (int i = 0; i < kUsed; ++i) _mm512_store_ps(tile + (t * kBlocks + i) * kBlockRows, sums[t][i]);
}

}  // namespace

const uint16_t* panel_bf16(const PackedMatrix& w, const std::byte* block, int64_t k0, int64_t k1, uint16_t* out) {
  switch (w.kind) {
    case PackKind::kBF16: return reinterpret_cast<const uint16_t*>(block) + k0 * kBlockRows;
    case PackKind::kF16:
    case PackKind::kF32: unpack_dense(w, block, k0, k1, out); return out;
    case PackKind::kAffine:
    case PackKind::kTable4: break;
  }
  switch (w.bits) {
    case 2: unpack_codes_any<2>(w, block, k0, k1, out); break;
    case 3: unpack_codes_any<3>(w, block, k0, k1, out); break;
    case 4: unpack_codes_any<4>(w, block, k0, k1, out); break;
    case 5: unpack_codes_any<5>(w, block, k0, k1, out); break;
    case 6: unpack_codes_any<6>(w, block, k0, k1, out); break;
    default: unpack_codes_any<8>(w, block, k0, k1, out); break;
  }
  return out;
}

void qmatmul_panel_bf16_avx512(const ArmCall& call) {
  const PackedMatrix& w = call.w;
  const int64_t stretch = w.padded_cols < kBf16PanelCols ? w.padded_cols : kBf16PanelCols;
  auto* scratch = reinterpret_cast<uint16_t*>(arm_scratch(0, kBlocks * stretch * kBlockRows * 2));
  alignas(64) float tile[kTile * kBlocks * kBlockRows];
  for (int64_t b = call.b0; b < call.b1; b += kBlocks) {
    const int64_t used = call.b1 - b < kBlocks ? call.b1 - b : kBlocks;
    const int64_t left = w.rows - b * kBlockRows, columns = left < used * kBlockRows ? left : used * kBlockRows;
    for (int64_t k0 = 0; k0 < w.padded_cols; k0 += stretch) {
      const int64_t k1 = k0 + stretch < w.padded_cols ? k0 + stretch : w.padded_cols;
      const uint16_t* panels[kBlocks];
      for (int64_t i = 0; i < used; ++i)
        panels[i] = panel_bf16(w, w.block(b + i), k0, k1, scratch + i * stretch * kBlockRows);
      for (int64_t t = 0; t < call.x.m; t += kTile) {
        const uint16_t* x = call.x.bf16_row(t) + k0;
        if (used == 1) multiply<1>(x, call.x.stride, panels, k1 - k0, tile);
        if (used == 2) multiply<2>(x, call.x.stride, panels, k1 - k0, tile);
        if (used == 3) multiply<3>(x, call.x.stride, panels, k1 - k0, tile);
        store_tile(tile, kBlocks * kBlockRows, call.x.m - t < kTile ? call.x.m - t : kTile, columns, k0 > 0,
                   call.y + t * call.y_stride + b * kBlockRows, call.y_stride);
      }
    }
  }
}

#else
void qmatmul_panel_bf16_avx512(const ArmCall& call) { qmatmul_panel_f32(call); }
#endif

}  // namespace galvani::kernels
