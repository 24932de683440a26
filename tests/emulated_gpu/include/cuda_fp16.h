#pragma once
/// f16 for the emulated build: the part of CUDA's header of this name that device code here uses.
#include <cstdint>

#include "emulated_gpu/prelude.h"

struct alignas(2) __half {
  unsigned short bits;
  __half() = default;
  __half(float x) : bits(std::bit_cast<unsigned short>(static_cast<_Float16>(x))) {}
  operator float() const { return static_cast<float>(std::bit_cast<_Float16>(bits)); }
};
struct alignas(4) __half2 {
  __half x, y;
};
inline float __half2float(__half x) { return x; }
inline __half __float2half_rn(float x) { return {x}; }
inline float2 __half22float2(__half2 v) { return {v.x, v.y}; }
inline __half2 __floats2half2_rn(float low, float high) { return {{low}, {high}}; }
