/// Few tokens on CPUs with AVX512_BF16: a slot's codes become 32 bf16 by one shift and one table look-up, and one
/// vdpbf16ps a token multiplies them by a broadcast pair of x. Sums, scales and biases are f32; codes are exact in
/// bf16.
#include "kernels/qmatmul/arms.h"
#include "kernels/qmatmul/codes_avx512.h"

namespace galvani::kernels {
#if defined(__x86_64__)
namespace {

constexpr int64_t kPrefetchBytes = 2048;

/// x of one tile of tokens at the columns of a unit.
struct Tokens {
  const uint16_t* x;
  int64_t stride;
};

GALVANI_AVX512BF16_INLINE __m512bh broadcast_pair(const uint16_t* x) {
  int pair;
  __builtin_memcpy(&pair, x, 4);
  return reinterpret_cast<__m512bh>(_mm512_set1_epi32(pair));
}

template <int kBits, int kSlot, int kEnd, int kTokens>
GALVANI_AVX512BF16_INLINE void add_slots(const CodeTables& tables, const __m512i* v, const Tokens& tokens,
                                         __m512 (&sums)[kTokens][2]) {
  if constexpr (kSlot < kEnd) {
    const auto low = reinterpret_cast<__m512bh>(slot_low<kBits, kSlot>(tables, v));
    for (int t = 0; t < kTokens; ++t) {
      const __m512bh x = broadcast_pair(tokens.x + t * tokens.stride + 2 * kSlot);
      sums[t][kSlot % 2] = _mm512_dpbf16_ps(sums[t][kSlot % 2], low, x);
    }
    if constexpr (kBits == 8) {
      const auto high = reinterpret_cast<__m512bh>(slot_high8<kSlot>(tables, v));
      for (int t = 0; t < kTokens; ++t) {
        const __m512bh x = broadcast_pair(tokens.x + t * tokens.stride + 2 * kSlot);
        sums[t][1 - kSlot % 2] = _mm512_dpbf16_ps(sums[t][1 - kSlot % 2], high, x);
      }
    }
    add_slots<kBits, kSlot + 1, kEnd, kTokens>(tables, v, tokens, sums);
  }
}

/// Slots [kBegin, kEnd) belong to one group.
template <int kBits, bool kBias, int kBegin, int kEnd, int kTokens>
GALVANI_AVX512BF16_INLINE void add_group(const CodeTables& tables, const BlockScales& scales, const __m512i* v,
                                         const Tokens& tokens, int64_t group, const float* x_sums, int64_t sums_stride,
                                         __m512 (&total)[kTokens]) {
  __m512 sums[kTokens][2];
  for (int t = 0; t < kTokens; ++t) sums[t][0] = sums[t][1] = _mm512_setzero_ps();
  add_slots<kBits, kBegin, kEnd, kTokens>(tables, v, tokens, sums);
  const __m512 scale = BlockScales::load(scales, false, group);
  if constexpr (!kBias) {
    for (int t = 0; t < kTokens; ++t)
      total[t] = _mm512_fmadd_ps(_mm512_add_ps(sums[t][0], sums[t][1]), scale, total[t]);
  } else {
    const __m512 bias = BlockScales::load(scales, true, group), zero = _mm512_set1_ps(scales.w.zero);
    for (int t = 0; t < kTokens; ++t) {
      const __m512 x_sum = _mm512_set1_ps(x_sums[t * sums_stride]);
      const __m512 sum = _mm512_fmadd_ps(zero, x_sum, _mm512_add_ps(sums[t][0], sums[t][1]));
      total[t] = _mm512_fmadd_ps(bias, x_sum, _mm512_fmadd_ps(sum, scale, total[t]));
    }
  }
}

template <int kBits, bool kGroup16, bool kBias, int kTokens>
GALVANI_AVX512BF16 void codes_block(const ArmCall& call, const CodeTables& tables, const std::byte* block, int64_t t0,
                                    float* out) {
  const PackedMatrix& w = call.w;
  const BlockScales scales{w, w.scales_of(block)};
  const float* x_sums = call.x.group_sums(t0, kGroup16 ? 16 : 32);
  const int64_t sums_stride = call.x.sums_stride;
  const int shift = kGroup16 ? 0 : __builtin_ctz(static_cast<unsigned>(w.group / 32));
  Tokens tokens{call.x.bf16_row(t0), call.x.stride};
  __m512 total[kTokens];
  for (int t = 0; t < kTokens; ++t) total[t] = _mm512_setzero_ps();
  const std::byte* from = block;
  for (int64_t u = 0; u < w.units; ++u, from += kBits * 64, tokens.x += kUnitCols) {
    __m512i v[kBits];
    for (int i = 0; i < kBits; ++i) {
      v[i] = _mm512_load_si512(from + i * 64);
      _mm_prefetch(reinterpret_cast<const char*>(from + i * 64 + kPrefetchBytes), _MM_HINT_T0);
    }
    if constexpr (kGroup16) {
      add_group<kBits, kBias, 0, 8>(tables, scales, v, tokens, 2 * u, x_sums + 2 * u, sums_stride, total);
      add_group<kBits, kBias, 8, 16>(tables, scales, v, tokens, 2 * u + 1, x_sums + 2 * u + 1, sums_stride, total);
    } else {
      add_group<kBits, kBias, 0, 16>(tables, scales, v, tokens, u >> shift, x_sums + u, sums_stride, total);
    }
  }
  for (int t = 0; t < kTokens; ++t) _mm512_storeu_ps(out + t * kBlockRows, total[t]);
}

/// Dense bf16: the packed bytes are the operands.
template <int kTokens>
GALVANI_AVX512BF16 void dense_block(const ArmCall& call, const std::byte* block, int64_t t0, float* out) {
  const uint16_t* x = call.x.bf16_row(t0);
  const int64_t stride = call.x.stride;
  __m512 sums[kTokens][4];
  for (int t = 0; t < kTokens; ++t)
    for (int i = 0; i < 4; ++i) sums[t][i] = _mm512_setzero_ps();
  for (int64_t k = 0; k < call.w.padded_cols; k += 8) {
    for (int i = 0; i < 4; ++i) {
      const std::byte* from = block + k * 32 + i * 64;
      const auto w = reinterpret_cast<__m512bh>(_mm512_load_si512(from));
      _mm_prefetch(reinterpret_cast<const char*>(from + kPrefetchBytes), _MM_HINT_T0);
      for (int t = 0; t < kTokens; ++t)
        sums[t][i] = _mm512_dpbf16_ps(sums[t][i], w, broadcast_pair(x + t * stride + k + 2 * i));
    }
  }
  for (int t = 0; t < kTokens; ++t) {
    const __m512 a = _mm512_add_ps(sums[t][0], sums[t][1]), b = _mm512_add_ps(sums[t][2], sums[t][3]);
    _mm512_storeu_ps(out + t * kBlockRows, _mm512_add_ps(a, b));
  }
}

template <int kBits, int kTokens>
GALVANI_AVX512BF16 void codes_blocks(const ArmCall& call, const CodeTables& tables, const std::byte* block, int64_t t0,
                                     float* out) {
  const bool bias = call.w.bias_form != ScaleForm::kNone;
  if (call.w.group == 16) {
    bias ? codes_block<kBits, true, true, kTokens>(call, tables, block, t0, out)
         : codes_block<kBits, true, false, kTokens>(call, tables, block, t0, out);
  } else {
    bias ? codes_block<kBits, false, true, kTokens>(call, tables, block, t0, out)
         : codes_block<kBits, false, false, kTokens>(call, tables, block, t0, out);
  }
}

template <int kTokens>
GALVANI_AVX512BF16 void any_block(const ArmCall& call, const CodeTables& tables, const std::byte* block, int64_t t0,
                                  float* out) {
  if (call.w.kind == PackKind::kBF16) return dense_block<kTokens>(call, block, t0, out);
  switch (call.w.bits) {
    case 2: return codes_blocks<2, kTokens>(call, tables, block, t0, out);
    case 3: return codes_blocks<3, kTokens>(call, tables, block, t0, out);
    case 4: return codes_blocks<4, kTokens>(call, tables, block, t0, out);
    case 5: return codes_blocks<5, kTokens>(call, tables, block, t0, out);
    case 6: return codes_blocks<6, kTokens>(call, tables, block, t0, out);
    default: return codes_blocks<8, kTokens>(call, tables, block, t0, out);
  }
}

}  // namespace

GALVANI_AVX512BF16 void qmatmul_rows_bf16_avx512(const ArmCall& call) {
  constexpr int64_t kTile = 8;
  const CodeTables tables = call.w.bits > 0 ? make_code_tables(call.w, false) : CodeTables{};
  alignas(64) float out[kTile * kBlockRows];
  for (int64_t b = call.b0; b < call.b1; ++b) {
    const std::byte* block = call.w.block(b);
    const int64_t columns = call.w.rows - b * kBlockRows < kBlockRows ? call.w.rows - b * kBlockRows : kBlockRows;
    for (int64_t t = 0; t < call.x.m; t += kTile) {
      const int64_t tokens = call.x.m - t < kTile ? call.x.m - t : kTile;
      if (tokens == 1) any_block<1>(call, tables, block, t, out);
      if (tokens == 2) any_block<2>(call, tables, block, t, out);
      if (tokens == 3 || tokens == 4) any_block<4>(call, tables, block, t, out);
      if (tokens > 4) any_block<8>(call, tables, block, t, out);
      store_tile(out, kBlockRows, tokens, columns, false, call.y + t * call.y_stride + b * kBlockRows, call.y_stride);
    }
  }
}

#else
// The plan never chooses these where there is no x86; f32 rows compute the same contract.
void qmatmul_rows_bf16_avx512(const ArmCall& call) { qmatmul_rows_f32(call); }
#endif

}  // namespace galvani::kernels
