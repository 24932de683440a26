#pragma once
/// Floats in unaligned little-endian bytes of f32, f16 or bf16.
#include <cstring>

#include "core/dtype.h"

namespace galvani::quant {

inline uint16_t load_u16(const std::byte* p) {
  uint16_t value;
  std::memcpy(&value, p, 2);
  return value;
}
inline float load_f16(const std::byte* p) { return f16_to_f32(load_u16(p)); }

constexpr bool is_float(DType type) { return type == DType::kF32 || type == DType::kF16 || type == DType::kBF16; }

/// Element i of an array of `type` (is_float).
inline float load_float(DType type, const std::byte* base, int64_t i) {
  if (type == DType::kF32) {
    float value;
    std::memcpy(&value, base + 4 * i, 4);
    return value;
  }
  const uint16_t bits = load_u16(base + 2 * i);
  return type == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

/// `count` elements as f32.
inline void load_floats(DType type, const std::byte* base, int64_t count, float* out) {
  if (count <= 0) return;  // memcpy of nothing still wants pointers
  if (type == DType::kF32) {
    std::memcpy(out, base, static_cast<size_t>(count) * 4);
  } else if (type == DType::kBF16) {
    for (int64_t i = 0; i < count; ++i) out[i] = bf16_to_f32(load_u16(base + 2 * i));
  } else {
    for (int64_t i = 0; i < count; ++i) out[i] = f16_to_f32(load_u16(base + 2 * i));
  }
}

}  // namespace galvani::quant
