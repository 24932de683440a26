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

/// f32 sums of kBlocks blocks of 16 rows for kTokens tokens; two a sum, so that each chain of additions is short.
template <int kBlocks, int kTokens>
struct Sums {
  __m512 part[kBlocks][kTokens][2];
  __m512 total[kBlocks][kTokens];
};

template <int kBits, int kSlot, int kEnd, int kBlocks, int kTokens>
GALVANI_AVX512BF16_INLINE void add_slots(const CodeTables& tables, const __m512i (*v)[kBits], const Tokens& tokens,
                                         Sums<kBlocks, kTokens>& sums) {
  if constexpr (kSlot < kEnd) {
    constexpr int kFirst = kSlot % 2, kSecond = 1 - kFirst;
    __m512bh low[kBlocks], high[kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      low[b] = reinterpret_cast<__m512bh>(slot_low<kBits, kSlot>(tables, v[b]));
      if constexpr (kBits == 8) high[b] = reinterpret_cast<__m512bh>(slot_high8<kSlot>(tables, v[b]));
    }
    for (int t = 0; t < kTokens; ++t) {
      const __m512bh x = broadcast_pair(tokens.x + t * tokens.stride + 2 * kSlot);
      for (int b = 0; b < kBlocks; ++b) {
        __m512(&part)[2] = sums.part[b][t];
        part[kFirst] = _mm512_dpbf16_ps(part[kFirst], low[b], x);
        if constexpr (kBits == 8) part[kSecond] = _mm512_dpbf16_ps(part[kSecond], high[b], x);
      }
    }
    add_slots<kBits, kSlot + 1, kEnd, kBlocks, kTokens>(tables, v, tokens, sums);
  }
}

/// Slots [kBegin, kEnd) belong to one group.
template <int kBits, bool kBias, int kBegin, int kEnd, int kBlocks, int kTokens>
GALVANI_AVX512BF16_INLINE void add_group(const CodeTables& tables, const BlockScales* scales, const __m512i (*v)[kBits],
                                         const Tokens& tokens, int64_t group, const float* x_sums, int64_t sums_stride,
                                         Sums<kBlocks, kTokens>& sums) {
  for (int b = 0; b < kBlocks; ++b)
    for (int t = 0; t < kTokens; ++t) sums.part[b][t][0] = sums.part[b][t][1] = _mm512_setzero_ps();
  add_slots<kBits, kBegin, kEnd, kBlocks, kTokens>(tables, v, tokens, sums);
  for (int b = 0; b < kBlocks; ++b) {
    const __m512 scale = BlockScales::load(scales[b], false, group);
    __m512 bias, zero;
    if constexpr (kBias) bias = BlockScales::load(scales[b], true, group), zero = _mm512_set1_ps(scales[b].w.zero);
    for (int t = 0; t < kTokens; ++t) {
      __m512 sum = _mm512_add_ps(sums.part[b][t][0], sums.part[b][t][1]);
      if constexpr (kBias) {
        const __m512 x_sum = _mm512_set1_ps(x_sums[t * sums_stride]);
        sums.total[b][t] = _mm512_fmadd_ps(bias, x_sum, sums.total[b][t]);
        sum = _mm512_fmadd_ps(zero, x_sum, sum);
      }
      sums.total[b][t] = _mm512_fmadd_ps(sum, scale, sums.total[b][t]);
    }
  }
}

/// Blocks `block`, `block` + 1, …; out is [kTokens][kBlocks · 16].
template <int kBits, bool kGroup16, bool kBias, int kBlocks, int kTokens>
GALVANI_AVX512BF16 void codes_block(const ArmCall& call, const CodeTables& tables, const std::byte* block, int64_t t0,
                                    float* out) {
  const PackedMatrix& w = call.w;
  const float* x_sums = call.x.group_sums(t0, kGroup16 ? 16 : 32);
  const int64_t sums_stride = call.x.sums_stride;
  const int shift = kGroup16 ? 0 : __builtin_ctz(static_cast<unsigned>(w.group / 32));
  Tokens tokens{call.x.bf16_row(t0), call.x.stride};
  Sums<kBlocks, kTokens> sums;
  for (int b = 0; b < kBlocks; ++b)
    for (int t = 0; t < kTokens; ++t) sums.total[b][t] = _mm512_setzero_ps();
  const std::byte* first_scales = w.scales_of(block);
  BlockScales scales[2] = {{w, first_scales}, {w, first_scales + (kBlocks - 1) * w.block_scale_bytes}};
  const std::byte* from = block;
  for (int64_t u = 0; u < w.units; ++u, from += kBits * 64, tokens.x += kUnitCols) {
    __m512i v[kBlocks][kBits];
    for (int b = 0; b < kBlocks; ++b)
      for (int i = 0; i < kBits; ++i) {
        const std::byte* at = from + b * w.block_bytes + i * 64;
        v[b][i] = _mm512_load_si512(at);
        _mm_prefetch(reinterpret_cast<const char*>(at + kBlocks * w.block_bytes), _MM_HINT_T1);
      }
    if constexpr (kGroup16) {
      add_group<kBits, kBias, 0, 8>(tables, scales, v, tokens, 2 * u, x_sums + 2 * u, sums_stride, sums);
      add_group<kBits, kBias, 8, 16>(tables, scales, v, tokens, 2 * u + 1, x_sums + 2 * u + 1, sums_stride, sums);
    } else {
      add_group<kBits, kBias, 0, 16>(tables, scales, v, tokens, u >> shift, x_sums + u, sums_stride, sums);
    }
  }
  for (int t = 0; t < kTokens; ++t)
    for (int b = 0; b < kBlocks; ++b) _mm512_storeu_ps(out + (t * kBlocks + b) * kBlockRows, sums.total[b][t]);
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

template <int kBits, int kBlocks, int kTokens>
GALVANI_AVX512BF16 void codes_blocks(const ArmCall& call, const CodeTables& tables, const std::byte* block, int64_t t0,
                                     float* out) {
  const bool bias = call.w.bias_form != ScaleForm::kNone;
  if (call.w.group == 16) {
    bias ? codes_block<kBits, true, true, kBlocks, kTokens>(call, tables, block, t0, out)
         : codes_block<kBits, true, false, kBlocks, kTokens>(call, tables, block, t0, out);
  } else {
    bias ? codes_block<kBits, false, true, kBlocks, kTokens>(call, tables, block, t0, out)
         : codes_block<kBits, false, false, kBlocks, kTokens>(call, tables, block, t0, out);
  }
}

template <int kBlocks, int kTokens>
GALVANI_AVX512BF16 void any_block(const ArmCall& call, const CodeTables& tables, const std::byte* block, int64_t t0,
                                  float* out) {
  switch (call.w.bits) {
    case 2: return codes_blocks<2, kBlocks, kTokens>(call, tables, block, t0, out);
    case 3: return codes_blocks<3, kBlocks, kTokens>(call, tables, block, t0, out);
    case 4: return codes_blocks<4, kBlocks, kTokens>(call, tables, block, t0, out);
    case 5: return codes_blocks<5, kBlocks, kTokens>(call, tables, block, t0, out);
    case 6: return codes_blocks<6, kBlocks, kTokens>(call, tables, block, t0, out);
    case 8: return codes_blocks<8, kBlocks, kTokens>(call, tables, block, t0, out);
    default:
      for (int b = 0; b < kBlocks; ++b) {
        float one[kTokens * kBlockRows];
        dense_block<kTokens>(call, block + b * call.w.block_bytes, t0, one);
        for (int t = 0; t < kTokens; ++t)
          __builtin_memcpy(out + (t * kBlocks + b) * kBlockRows, one + t * kBlockRows, kBlockRows * 4);
      }
  }
}

/// Tokens [t, t + tokens) of kBlocks blocks. Few tokens take two blocks at a time: they share the broadcasts of x, and
/// twice as many chains of additions run beside each other.
template <int kBlocks>
GALVANI_AVX512BF16 void tile(const ArmCall& call, const CodeTables& tables, const std::byte* block, int64_t t,
                             int64_t tokens, float* out) {
  if (tokens == 1) return any_block<kBlocks, 1>(call, tables, block, t, out);
  if (tokens == 2) return any_block<kBlocks, 2>(call, tables, block, t, out);
  if constexpr (kBlocks == 1) {
    if (tokens <= 4) return any_block<1, 4>(call, tables, block, t, out);
    any_block<1, 8>(call, tables, block, t, out);
  }
}

}  // namespace

GALVANI_AVX512BF16 void qmatmul_rows_bf16_avx512(const ArmCall& call) {
  constexpr int64_t kTile = 8;
  const CodeTables tables = call.w.bits > 0 ? make_code_tables(call.w, false) : CodeTables{};
  alignas(64) float out[kTile * kBlockRows];
  int64_t step = 1;
  for (int64_t b = call.b0; b < call.b1; b += step) {
    step = call.x.m <= 2 && b + 1 < call.b1 ? 2 : 1;
    const std::byte* block = call.w.block(b);
    const int64_t left = call.w.rows - b * kBlockRows, most = step * kBlockRows, columns = left < most ? left : most;
    for (int64_t t = 0; t < call.x.m; t += kTile) {
      const int64_t tokens = call.x.m - t < kTile ? call.x.m - t : kTile;
      step == 2 ? tile<2>(call, tables, block, t, tokens, out) : tile<1>(call, tables, block, t, tokens, out);
      store_tile(out, most, tokens, columns, false, call.y + t * call.y_stride + b * kBlockRows, call.y_stride);
    }
  }
}

#else
// The plan never chooses these where there is no x86; f32 rows compute the same contract.
void qmatmul_rows_bf16_avx512(const ArmCall& call) { qmatmul_rows_f32(call); }
#endif

}  // namespace galvani::kernels
