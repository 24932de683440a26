#pragma once
/// Scalar decoders of the micro-scaling float formats (OCP Microscaling 1.0; NVIDIA's nvfp4).
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace galvani::quant {

/// E2M1: sign in bit 3. Doubled, so that the table holds integers; pair it with half the scale.
inline constexpr float kE2M1Doubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, -0.0f, -1, -2, -3, -4, -6, -8, -12};

/// 2^(bits-127)/2, exact in f32 for every value (subnormal below 2); E8M0's NaN code 255 is read as 2^128, as ggml
/// does.
constexpr float e8m0_half(uint8_t bits) {
  return std::bit_cast<float>(bits < 2 ? 0x00200000u << bits : static_cast<uint32_t>(bits - 1) << 23);
}
/// 2^(bits-127); 255 becomes infinity.
constexpr float e8m0(uint8_t bits) {
  return bits == 0 ? 0x1p-127f : std::bit_cast<float>(static_cast<uint32_t>(bits) << 23);
}

/// E4M3 (finite-only, NaN at 0x7f and 0xff).
constexpr float e4m3(uint8_t bits) {
  const int exponent = (bits >> 3) & 15, mantissa = bits & 7;
  float magnitude = 0;
  if (exponent == 15 && mantissa == 7)
    magnitude = std::numeric_limits<float>::quiet_NaN();
  else if (exponent == 0)
    magnitude = static_cast<float>(mantissa) * 0x1p-9f;
  else
    magnitude =
        std::bit_cast<float>(static_cast<uint32_t>(exponent + 120) << 23 | static_cast<uint32_t>(mantissa) << 20);
  return bits & 0x80 ? -magnitude : magnitude;
}

}  // namespace galvani::quant
