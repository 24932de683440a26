#include "quant/gguf_blocks.h"

#include <cstring>

#include "quant/float_bytes.h"
#include "quant/fp_codec.h"

namespace galvani::quant {
namespace {

using formats::GgmlType;

const uint8_t* u8(const std::byte* p) { return reinterpret_cast<const uint8_t*>(p); }

/// 16 bytes: low nibbles are elements 0–15, high nibbles 16–31.
void nibbles32(const uint8_t* q, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = q[j] & 15;
    codes[j + 16] = q[j] >> 4;
  }
}

/// Adds `16` to code j where bit j of the four bytes at `high` is set.
void add_fifth_bits(const uint8_t* high, uint8_t* codes) {
  for (int b = 0; b < 4; ++b) {
    uint64_t bits = (high[b] * 0x0101010101010101ull) & 0x8040201008040201ull;  // byte k keeps bit k
    bits = ((bits + 0x7f7f7f7f7f7f7f7full) & 0x8080808080808080ull) >> 3;       // non-zero byte → 16
    uint64_t old;
    std::memcpy(&old, codes + 8 * b, 8);
    old |= bits;
    std::memcpy(codes + 8 * b, &old, 8);
  }
}

void unpack_q4_0(const std::byte* p, uint8_t* codes, float* scale, float* bias) {
  const float d = load_f16(p);
  *scale = d;
  *bias = -8.0f * d;
  nibbles32(u8(p) + 2, codes);
}
void unpack_q4_1(const std::byte* p, uint8_t* codes, float* scale, float* bias) {
  *scale = load_f16(p);
  *bias = load_f16(p + 2);
  nibbles32(u8(p) + 4, codes);
}
void unpack_q5_0(const std::byte* p, uint8_t* codes, float* scale, float* bias) {
  const float d = load_f16(p);
  *scale = d;
  *bias = -16.0f * d;
  nibbles32(u8(p) + 6, codes);
  add_fifth_bits(u8(p) + 2, codes);
}
void unpack_q5_1(const std::byte* p, uint8_t* codes, float* scale, float* bias) {
  *scale = load_f16(p);
  *bias = load_f16(p + 2);
  nibbles32(u8(p) + 8, codes);
  add_fifth_bits(u8(p) + 4, codes);
}
void unpack_q8_0(const std::byte* p, uint8_t* codes, float* scale, float* bias) {
  const float d = load_f16(p);
  *scale = d;
  *bias = -128.0f * d;
  const uint8_t* q = u8(p) + 2;
  for (int j = 0; j < 32; ++j) codes[j] = q[j] ^ 0x80;
}

/// 128 codes of two bits: pass s takes bits 2s of the 32 bytes.
void pairs128(const uint8_t* q, uint8_t* codes) {
  for (int s = 0; s < 4; ++s)
    for (int l = 0; l < 32; ++l) codes[32 * s + l] = (q[l] >> (2 * s)) & 3;
}

/// scales[16], qs[64], d, dmin.
void unpack_q2_k(const std::byte* p, uint8_t* codes, float* scale, float* bias) {
  const uint8_t* sc = u8(p);
  const float d = load_f16(p + 80), dmin = load_f16(p + 82);
  for (int i = 0; i < 16; ++i) {
    scale[i] = d * static_cast<float>(sc[i] & 15);
    bias[i] = -(dmin * static_cast<float>(sc[i] >> 4));
  }
  pairs128(u8(p) + 16, codes);
  pairs128(u8(p) + 48, codes + 128);
}

/// hmask[32], qs[64], scales[12] of six bits, d. A set mask bit adds 4, and the codes run from -4.
void unpack_q3_k(const std::byte* p, uint8_t* codes, float* scale, float* bias) {
  const uint8_t *mask = u8(p), *packed = u8(p) + 96;
  const float d = load_f16(p + 108);
  for (int i = 0; i < 16; ++i) {
    const int low = i < 8 ? packed[i] & 15 : packed[i - 8] >> 4;
    const int high = (packed[8 + i % 4] >> (2 * (i / 4))) & 3;
    scale[i] = d * static_cast<float>((low | high << 4) - 32);
    bias[i] = -4.0f * scale[i];
  }
  pairs128(u8(p) + 32, codes);
  pairs128(u8(p) + 64, codes + 128);
  for (int pass = 0; pass < 8; ++pass)
    for (int l = 0; l < 32; ++l)
      codes[32 * pass + l] = static_cast<uint8_t>(codes[32 * pass + l] | ((mask[l] >> pass) & 1) << 2);
}

/// The eight 6-bit scales and mins of Q4_K and Q5_K, times d and -dmin.
void scales_k4(const std::byte* p, float* scale, float* bias) {
  const float d = load_f16(p), dmin = load_f16(p + 2);
  const uint8_t* s = u8(p) + 4;
  for (int j = 0; j < 8; ++j) {
    const int sc = j < 4 ? s[j] & 63 : (s[j + 4] & 15) | (s[j - 4] >> 6) << 4;
    const int m = j < 4 ? s[j + 4] & 63 : (s[j + 4] >> 4) | (s[j] >> 6) << 4;
    scale[j] = d * static_cast<float>(sc);
    bias[j] = -(dmin * static_cast<float>(m));
  }
}

/// 64 codes from 32 bytes: low nibbles first.
void nibbles64(const uint8_t* q, uint8_t* codes) {
  for (int l = 0; l < 32; ++l) {
    codes[l] = q[l] & 15;
    codes[l + 32] = q[l] >> 4;
  }
}

/// d, dmin, scales[12], qs[128].
void unpack_q4_k(const std::byte* p, uint8_t* codes, float* scale, float* bias) {
  scales_k4(p, scale, bias);
  for (int i = 0; i < 4; ++i) nibbles64(u8(p) + 16 + 32 * i, codes + 64 * i);
}

/// d, dmin, scales[12], qh[32], qs[128]; sub-block j takes bit j of each qh byte.
void unpack_q5_k(const std::byte* p, uint8_t* codes, float* scale, float* bias) {
  scales_k4(p, scale, bias);
  const uint8_t* high = u8(p) + 16;
  for (int i = 0; i < 4; ++i) nibbles64(u8(p) + 48 + 32 * i, codes + 64 * i);
  for (int j = 0; j < 8; ++j)
    for (int l = 0; l < 32; ++l)
      codes[32 * j + l] = static_cast<uint8_t>(codes[32 * j + l] | ((high[l] >> j) & 1) << 4);
}

/// ql[128], qh[64], i8 scales[16], d; codes run from -32.
void unpack_q6_k(const std::byte* p, uint8_t* codes, float* scale, float* bias) {
  const float d = load_f16(p + 208);
  for (int i = 0; i < 16; ++i) {
    scale[i] = d * static_cast<float>(static_cast<int8_t>(u8(p)[192 + i]));
    bias[i] = -32.0f * scale[i];
  }
  for (int half = 0; half < 2; ++half) {
    const uint8_t *low = u8(p) + 64 * half, *high = u8(p) + 128 + 32 * half;
    uint8_t* out = codes + 128 * half;
    for (int l = 0; l < 32; ++l) {
      out[l] = static_cast<uint8_t>((low[l] & 15) | (high[l] & 3) << 4);
      out[l + 32] = static_cast<uint8_t>((low[l + 32] & 15) | ((high[l] >> 2) & 3) << 4);
      out[l + 64] = static_cast<uint8_t>((low[l] >> 4) | ((high[l] >> 4) & 3) << 4);
      out[l + 96] = static_cast<uint8_t>((low[l + 32] >> 4) | (high[l] >> 6) << 4);
    }
  }
}

template <void (*Unpack)(const std::byte*, uint8_t*, float*, float*), int Bytes, int Elements, int Groups>
void unpack_all(const std::byte* blocks, int64_t count, uint8_t* codes, float* scales, float* biases) {
  for (int64_t i = 0; i < count; ++i)
    Unpack(blocks + i * Bytes, codes + i * Elements, scales + i * Groups, biases + i * Groups);
}

constexpr int8_t kIq4Nl[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};

/// 32 values from a table and 16 bytes of nibbles, elements j and j+16 in byte j.
template <typename Table>
void decode_table(const Table& table, float scale, const uint8_t* q, float* out) {
  for (int j = 0; j < 16; ++j) {
    out[j] = scale * static_cast<float>(table[q[j] & 15]);
    out[j + 16] = scale * static_cast<float>(table[q[j] >> 4]);
  }
}

}  // namespace

std::optional<AffineImport> affine_import(GgmlType type) noexcept {
  switch (type) {
    case GgmlType::kQ4_0:
    case GgmlType::kQ4_1: return AffineImport{4, 32, DType::kF16};
    case GgmlType::kQ5_0:
    case GgmlType::kQ5_1: return AffineImport{5, 32, DType::kF16};
    case GgmlType::kQ8_0: return AffineImport{8, 32, DType::kF16};
    case GgmlType::kQ2_K: return AffineImport{2, 16, DType::kF32};
    case GgmlType::kQ3_K: return AffineImport{3, 16, DType::kF32};
    case GgmlType::kQ4_K: return AffineImport{4, 32, DType::kF32};
    case GgmlType::kQ5_K: return AffineImport{5, 32, DType::kF32};
    case GgmlType::kQ6_K: return AffineImport{6, 16, DType::kF32};
    default: return std::nullopt;
  }
}

void unpack_blocks(GgmlType type, const std::byte* blocks, int64_t count, uint8_t* codes, float* scales,
                   float* biases) {
  switch (type) {
    case GgmlType::kQ4_0: return unpack_all<unpack_q4_0, 18, 32, 1>(blocks, count, codes, scales, biases);
    case GgmlType::kQ4_1: return unpack_all<unpack_q4_1, 20, 32, 1>(blocks, count, codes, scales, biases);
    case GgmlType::kQ5_0: return unpack_all<unpack_q5_0, 22, 32, 1>(blocks, count, codes, scales, biases);
    case GgmlType::kQ5_1: return unpack_all<unpack_q5_1, 24, 32, 1>(blocks, count, codes, scales, biases);
    case GgmlType::kQ8_0: return unpack_all<unpack_q8_0, 34, 32, 1>(blocks, count, codes, scales, biases);
    case GgmlType::kQ2_K: return unpack_all<unpack_q2_k, 84, 256, 16>(blocks, count, codes, scales, biases);
    case GgmlType::kQ3_K: return unpack_all<unpack_q3_k, 110, 256, 16>(blocks, count, codes, scales, biases);
    case GgmlType::kQ4_K: return unpack_all<unpack_q4_k, 144, 256, 8>(blocks, count, codes, scales, biases);
    case GgmlType::kQ5_K: return unpack_all<unpack_q5_k, 176, 256, 8>(blocks, count, codes, scales, biases);
    case GgmlType::kQ6_K: return unpack_all<unpack_q6_k, 210, 256, 16>(blocks, count, codes, scales, biases);
    default: return;
  }
}

void decode_blocks(GgmlType type, const std::byte* blocks, int64_t count, float* out) {
  switch (type) {
    case GgmlType::kF32: return load_floats(DType::kF32, blocks, count, out);
    case GgmlType::kF16: return load_floats(DType::kF16, blocks, count, out);
    case GgmlType::kBF16: return load_floats(DType::kBF16, blocks, count, out);
    case GgmlType::kIQ4_NL:
      for (int64_t i = 0; i < count; ++i)
        decode_table(kIq4Nl, load_f16(blocks + 18 * i), u8(blocks) + 18 * i + 2, out + 32 * i);
      return;
    case GgmlType::kMXFP4:
      for (int64_t i = 0; i < count; ++i)
        decode_table(kE2M1Doubled, e8m0_half(u8(blocks)[17 * i]), u8(blocks) + 17 * i + 1, out + 32 * i);
      return;
    default: break;
  }
  const auto import = affine_import(type);
  const auto& info = formats::ggml_type_info(type);
  if (!import) return;
  const int group = import->group, groups = info.block / group;
  uint8_t codes[256];
  float scales[16], biases[16];
  for (int64_t i = 0; i < count; ++i) {
    unpack_blocks(type, blocks + i * info.bytes, 1, codes, scales, biases);
    for (int g = 0; g < groups; ++g) {
      for (int j = 0; j < group; ++j) out[j] = static_cast<float>(codes[g * group + j]) * scales[g] + biases[g];
      out += group;
    }
  }
}

}  // namespace galvani::quant
