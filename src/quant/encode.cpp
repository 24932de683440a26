#include "quant/encode.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "core/error.h"
#include "quant/bit_pack.h"
#include "quant/fp_codec.h"

namespace galvani::quant {
namespace {

constexpr int kLongestGroup = 128;

// Rounds to even for |x| < 2^22: the sum drops the fraction. Two additions, where std::rint may be a call.
inline float round_even(float x) {
  constexpr float kShift = 12582912.0f;  // 1.5 · 2^23
  return (x + kShift) - kShift;
}

void encode_affine(const CodeFormat& format, const float* weights, int64_t count, std::byte* codes, std::byte* scales,
                   std::byte* biases) {
  const auto n = static_cast<float>((1 << format.bits) - 1);
  const int group = format.group;
  uint8_t bytes[kLongestGroup];
  for (int64_t g = 0; g < count / group; ++g) {
    const float* w = weights + g * group;
    float low = w[0], high = w[0];
    for (int i = 1; i < group; ++i) {
      low = std::min(low, w[i]);
      high = std::max(high, w[i]);
    }
    const bool from_low = std::fabs(low) > std::fabs(high);
    const float step = std::max((high - low) / n, 1e-7f);
    const float edge = from_low ? low : high;
    float scale = from_low ? step : -step, bias = 0;
    if (const float q0 = std::rint(edge / scale); q0 != 0) {
      scale = edge / q0;
      bias = edge;
    }
    for (int i = 0; i < group; ++i) {  // clipped first, which rounding cannot tell
      const float q = std::min(std::max((w[i] - bias) / scale, 0.0f), n);
      bytes[i] = static_cast<uint8_t>(static_cast<int>(round_even(q)));
    }
    pack_codes(format.bits, bytes, group, codes + format.code_bytes(g * group));
    store_floats(format.dtype, &scale, 1, scales + g * format.scale_bytes());
    store_floats(format.dtype, &bias, 1, biases + g * format.scale_bytes());
  }
}

// Nearest E4M3, ties to even, beyond 448 saturated.
uint8_t to_e4m3(float x) {
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  const float magnitude = std::fabs(x);
  if (!(magnitude < 464.0f)) return sign | 0x7e;  // halfway to what would be 480
  if (magnitude < 0x1p-6f) return sign | static_cast<uint8_t>(std::rint(magnitude * 512.0f));  // subnormal, or 2^-6
  const auto bits = std::bit_cast<uint32_t>(magnitude);
  const uint32_t rounded = bits + 0x7ffff + ((bits >> 20) & 1);
  return sign | static_cast<uint8_t>((rounded >> 20) - (120u << 3));
}

// The E2M1 code whose value is nearest; of several at the same distance the first, where distances are rounded to
// `type`. -0 comes after 0 in the list, so it is never chosen.
uint8_t to_e2m1(DType type, float x) {
  int best = 0;
  float nearest = std::numeric_limits<float>::infinity();
  for (int code = 0; code < 16; ++code) {
    const float distance = std::fabs(round_to(type, x - 0.5f * kE2M1Doubled[code]));
    if (distance < nearest) {
      nearest = distance;
      best = code;
    }
  }
  return static_cast<uint8_t>(best);
}

// For 16-bit types every code is looked up by the value's bits.
const std::array<uint8_t, 65536>& e2m1_table(DType type) {
  const auto fill = [](DType of) {
    auto table = std::make_unique<std::array<uint8_t, 65536>>();
    for (uint32_t i = 0; i < 65536; ++i) {
      const auto bits = static_cast<uint16_t>(i);
      (*table)[i] = to_e2m1(of, of == DType::kBF16 ? bf16_to_f32(bits) : f16_to_f32(bits));
    }
    return table;
  };
  static const auto kBf16 = fill(DType::kBF16), kF16 = fill(DType::kF16);
  return type == DType::kBF16 ? *kBf16 : *kF16;
}

uint8_t e2m1_code(DType type, float x) {
  if (type == DType::kF32) return to_e2m1(type, x);
  return e2m1_table(type)[type == DType::kBF16 ? f32_to_bf16(x) : f32_to_f16(x)];
}

// The least integer e with x <= 2^e; x is positive and finite.
int ceil_log2(float x) {
  int exponent = 0;
  return std::frexp(x, &exponent) == 0.5f ? exponent - 1 : exponent;
}

void encode_float(const CodeFormat& format, const float* weights, int64_t count, std::byte* codes, std::byte* scales) {
  const DType type = format.dtype;
  const int group = format.group;
  const float top = format.bits == 4 ? 6.0f : 448.0f;
  for (int64_t g = 0; g < count / group; ++g) {
    const float* w = weights + g * group;
    float largest = 0;
    for (int i = 0; i < group; ++i) largest = std::max(largest, std::fabs(w[i]));
    const float ratio = round_to(type, largest / top);
    float scale;
    uint8_t code;
    if (format.kind == MatrixKind::kNvfp4) {
      code = to_e4m3(ratio);
      scale = round_to(type, e4m3(code));
    } else {
      const int exponent = ratio == 0 ? 0 : ceil_log2(ratio);
      code = static_cast<uint8_t>(exponent + 127);
      scale = round_to(type, std::ldexp(1.0f, exponent));
    }
    scales[g] = static_cast<std::byte>(code);
    uint8_t bytes[32];
    for (int i = 0; i < group; ++i) {
      const float x = round_to(type, w[i] / scale);
      bytes[i] = format.bits == 8 ? to_e4m3(x) : e2m1_code(type, x);
    }
    pack_codes(format.bits, bytes, group, codes + format.code_bytes(g * group));
  }
}

}  // namespace

Status check_code_format(const CodeFormat& format) {
  const int b = format.bits, g = format.group;
  bool good = false;
  switch (format.kind) {
    case MatrixKind::kAffine: good = b >= 2 && b <= 8 && b != 7 && (g == 32 || g == 64 || g == 128); break;
    case MatrixKind::kMxfp4: good = b == 4 && g == 32; break;
    case MatrixKind::kMxfp8: good = b == 8 && g == 32; break;
    case MatrixKind::kNvfp4: good = b == 4 && g == 16; break;
    default: break;
  }
  if (good) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      "{} with {} bits in groups of {} cannot be written; affine takes 2, 3, 4, 5, 6 or 8 bits in groups of 32, "
      "64 or 128, mxfp4 4 in 32, mxfp8 8 in 32, nvfp4 4 in 16",
      matrix_kind_name(format.kind), b, g);
}

void store_floats(DType type, const float* values, int64_t count, std::byte* out) {
  if (count <= 0) return;
  if (type == DType::kF32) {
    std::memcpy(out, values, static_cast<size_t>(count) * 4);
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t half = type == DType::kBF16 ? f32_to_bf16(values[i]) : f32_to_f16(values[i]);
    std::memcpy(out + 2 * i, &half, 2);
  }
}

void encode_groups(const CodeFormat& format, const float* weights, int64_t count, std::byte* codes, std::byte* scales,
                   std::byte* biases) {
  if (format.affine())
    encode_affine(format, weights, count, codes, scales, biases);
  else
    encode_float(format, weights, count, codes, scales);
}

}  // namespace galvani::quant
