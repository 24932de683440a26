#pragma once
/// bf16 for the emulated build: the part of CUDA's header of this name that device code here uses.
#include "emulated_gpu/prelude.h"

struct alignas(2) __nv_bfloat16 {
  unsigned short bits;
  __nv_bfloat16() = default;
  __nv_bfloat16(float x) : bits(rounded(x)) {}
  operator float() const { return std::bit_cast<float>(static_cast<unsigned>(bits) << 16); }

 private:
  /// To nearest, ties to even; NaN becomes the canonical one.
  static unsigned short rounded(float x) {
    if (std::isnan(x)) return 0x7fff;
    const auto u = std::bit_cast<unsigned>(x);
    return static_cast<unsigned short>((u + 0x7fff + (u >> 16 & 1u)) >> 16);
  }
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
inline float __bfloat162float(__nv_bfloat16 x) { return x; }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return {x}; }
inline __nv_bfloat162 __floats2bfloat162_rn(float low, float high) { return {{low}, {high}}; }
