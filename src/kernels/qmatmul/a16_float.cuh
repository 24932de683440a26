#pragma once
// From A16 words of float codes in registers to A fragments of m16n8k16, and their scales. a16_float.h has the
// formulas.
#include "kernels/common/mma.cuh"
#include "kernels/qmatmul/a16_dequant.cuh"
#include "kernels/qmatmul/a16_float.h"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// Product of two packed elements, one rounding, the sign of a zero kept.
template <typename T>
GALVANI_DEVICE unsigned mul2(unsigned a, unsigned b) {
  return fma2<T>(a, b, 0x80008000u);
}

using kernels::kA16E2M1, kernels::kA16E4M3;  // for the tables of kernels

template <int kInstance, typename T>
struct A16FloatCodes {
  static constexpr bool kIsBf16 = kIsBf16Type<T>;
  static constexpr int kWords = a16_bits(kInstance);
  unsigned word[kWords];

  /// `unit` in shared or global memory, 16-byte aligned.
  GALVANI_DEVICE void load(const unsigned char* unit, int lane) {
#pragma unroll
    for (int first = 0; first < kWords; first += 4) {
      const uint4 v = *reinterpret_cast<const uint4*>(unit + 128 * first + lane * 16);
      word[first] = v.x, word[first + 1] = v.y, word[first + 2] = v.z, word[first + 3] = v.w;
    }
  }
  /// A register i % 4 of k16 step i / 4: codes times 2^-a16_float_exponent.
  template <int kPair>
  GALVANI_DEVICE unsigned moved() const {
    constexpr int kFields = a16_float_fields(kInstance);
    return a16_float_pair<kInstance, kIsBf16, kPair % kFields>(word[kPair / kFields]);
  }
  /// The codes themselves, exactly.
  template <int kPair>
  GALVANI_DEVICE unsigned pair() const {
    return mul2<T>(moved<kPair>(), a16_float_multiplier(kInstance, kIsBf16));
  }
};
template <typename T>
struct A16Codes<kA16E2M1, T> : A16FloatCodes<kA16E2M1, T> {};
template <typename T>
struct A16Codes<kA16E4M3, T> : A16FloatCodes<kA16E4M3, T> {};

/// Scales of the lane's two rows for all kSub subgroups of a unit: E8M0 for two, E5M3 for four. `at`: behind the words.
template <int kSub>
GALVANI_DEVICE void a16_float_scales(float (&scale)[kSub][2], const unsigned char* at, int lane) {
  constexpr A16Scale kScale = kSub == 4 ? A16Scale::kE5M3 : A16Scale::kE8M0;
  unsigned bytes[kSub / 2];
  if constexpr (kSub == 4) {
    const uint2 v = *reinterpret_cast<const uint2*>(at + lane / 4 * 8);
    bytes[0] = v.x, bytes[1] = v.y;
  } else {
    bytes[0] = *reinterpret_cast<const unsigned*>(at + lane / 4 * 4);
  }
#pragma unroll
  for (int s = 0; s < kSub; ++s)
#pragma unroll
    for (int row = 0; row < 2; ++row)
      scale[s][row] = __uint_as_float(a16_scale_f32(kScale, bytes[s / 2], s % 2 * 2 + row));
}

/// scale · 2^a16_float_exponent of the lane's two rows for one subgroup, doubled for two-element arithmetic.
template <int kInstance, typename T>
struct A16FloatScales {
  static constexpr bool kIsBf16 = kIsBf16Type<T>;
  unsigned scale[2];
  GALVANI_DEVICE void load(const unsigned char* unit, int words, int subgroup, int subgroups, int lane) {
    const bool four = kInstance == kA16E2M1 && subgroups == 4;
    const unsigned char* const at = unit + words + (lane / 4 * (four ? 4 : 2) + subgroup) * 2;
    const unsigned bytes = *reinterpret_cast<const unsigned short*>(at);
#pragma unroll
    for (int row = 0; row < 2; ++row) {
      const unsigned byte = bytes >> 8 * row & 255u;
      scale[row] = four ? a16_scale_16(kInstance, kIsBf16, A16Scale::kE5M3, byte)
                        : a16_scale_16(kInstance, kIsBf16, A16Scale::kE8M0, byte);
    }
  }
};

/// The weights of k16 step kStep, exact where the matrix says so (A16FloatForm).
template <int kStep, int kInstance, typename T>
GALVANI_DEVICE void a16_weights(unsigned (&a)[4], const A16Codes<kInstance, T>& codes,
                                const A16FloatScales<kInstance, T>& scales) {
  a[0] = mul2<T>(codes.template moved<4 * kStep>(), scales.scale[0]);
  a[1] = mul2<T>(codes.template moved<4 * kStep + 1>(), scales.scale[1]);
  a[2] = mul2<T>(codes.template moved<4 * kStep + 2>(), scales.scale[0]);
  a[3] = mul2<T>(codes.template moved<4 * kStep + 3>(), scales.scale[1]);
}

template <int kInstance, typename T, bool kNative>
struct A16ScalesFor {
  using Type = A16WeightScales<kInstance, T, kNative>;
};
template <typename T, bool kNative>
struct A16ScalesFor<kA16E2M1, T, kNative> {
  using Type = A16FloatScales<kA16E2M1, T>;
};
template <typename T, bool kNative>
struct A16ScalesFor<kA16E4M3, T, kNative> {
  using Type = A16FloatScales<kA16E4M3, T>;
};
/// What an arm that finishes weights keeps of a subgroup's scales.
template <int kInstance, typename T, bool kNative>
using A16ScalesOf = typename A16ScalesFor<kInstance, T, kNative>::Type;

}  // namespace galvani::kernels::GALVANI_CUDA_NS
