#pragma once
// From A16 words in registers to A fragments of m16n8k16. a16_layout.h says where the bits are.
#include "kernels/common/device.cuh"
#include "kernels/qmatmul/a16_layout.h"

namespace galvani::kernels::GALVANI_CUDA_NS {

template <int kBy>
GALVANI_DEVICE unsigned rotate_right(unsigned a) {
  constexpr int kAmount = ((kBy % 32) + 32) % 32;
  if constexpr (kAmount == 0) return a;
  return __funnelshift_r(a, a, kAmount);
}

/// The two elements of a register, low half first.
template <typename T>
GALVANI_DEVICE float2 unpack2(unsigned v);
template <>
GALVANI_DEVICE float2 unpack2<bf16>(unsigned v) {
  return {__uint_as_float(v << 16), __uint_as_float(v & 0xffff0000u)};
}
template <>
GALVANI_DEVICE float2 unpack2<f16>(unsigned v) {
  return __half22float2(*reinterpret_cast<const __half2*>(&v));
}

template <typename T>
constexpr bool kIsBf16Type = false;
template <>
constexpr bool kIsBf16Type<bf16> = true;

/// A lane's codes of one unit. `pair<i>()` is A register i % 4 of k16 step i / 4 holding offset + code, exactly;
/// offset(half) is what to take off again for rows 0…7 and 8…15 of the tile.
template <int kBits, typename T>
struct A16Codes {
  static constexpr bool kIsBf16 = kIsBf16Type<T>;
  static constexpr int kMantissa = kIsBf16 ? 7 : 10;
  static constexpr int kBias = kIsBf16 ? 127 : 15;

  unsigned word[kBits];

  /// `unit` in shared or global memory, 16-byte aligned.
  GALVANI_DEVICE void load(const unsigned char* unit, int lane) {
    int first = 0;
    if constexpr (kBits >= 4) {
#pragma unroll
      for (; first + 4 <= kBits; first += 4) {
        const uint4 v = *reinterpret_cast<const uint4*>(unit + 128 * first + lane * 16);
        word[first] = v.x, word[first + 1] = v.y, word[first + 2] = v.z, word[first + 3] = v.w;
      }
    }
    if constexpr (kBits % 4 >= 2) {
      const uint2 v = *reinterpret_cast<const uint2*>(unit + 128 * first + lane * 8);
      word[first] = v.x, word[first + 1] = v.y;
      first += 2;
    }
    if constexpr (kBits % 2 == 1) word[first] = *reinterpret_cast<const unsigned*>(unit + 128 * first + lane * 4);
  }

  /// With the codes' lowest bit at mantissa bit `at`, this exponent makes that bit worth 1.
  static constexpr unsigned twice(unsigned half) { return half | (half << 16); }
  static constexpr unsigned magic(int at) { return twice(static_cast<unsigned>(kBias + kMantissa - at) << kMantissa); }
  static constexpr unsigned mask(int width, int at) { return twice(((1u << width) - 1u) << at); }

  static constexpr int kTop = kMantissa - kBits;  // codes on the top mantissa bits: offset 2^kBits

  /// 2 bits: even fields stay two bits below the odd ones of the same rotation, which saves every second rotation;
  /// field parity is the tile's row half, so each half has one offset.
  static constexpr float offset(int half) {
    if (kBits == 8) return kIsBf16 ? -128.0f : 256.0f;
    if (kBits == 2 && half == 0) return 16.0f;
    return static_cast<float>(1 << kBits);
  }

  /// bf16 but for 8 bits: `bare<i>()` is the codes of pair<i>() without the exponent that makes them numbers of their
  /// own: as subnormal numbers they are code · 2^bare_log2(half), exactly, and without an offset.
  static constexpr bool kHasBare = kIsBf16 && kBits != 8;
  static constexpr int bare_log2(int half) { return kTop - (kBits == 2 && half == 0 ? 2 : 0) - 133; }

  template <int kPair>
  GALVANI_DEVICE unsigned pair() const {
    if constexpr (kBits == 8 && kIsBf16) {
      // 128 + low seven bits, and -128 or -256 by the top bit: their sum, code - 128, is exact.
      const unsigned w = kPair % 2 == 0 ? word[kPair / 2] : word[kPair / 2] >> 8;
      return add2<T>(and_or<0x007f007fu>(w, 0x43004300u), and_xor<0x00800080u>(w, 0xc380c380u));
    } else {
      return over<kPair>(magic(at<kPair>()));
    }
  }
  template <int kPair>
  GALVANI_DEVICE unsigned bare() const {
    return over<kPair>(0);
  }

 private:
  static constexpr int kFields = a16_fields(kBits), kWhole = kFields * kBits;

  /// Where the lowest bit of a pair's codes comes to lie.
  template <int kPair>
  static constexpr int at() {
    if (kPair >= kWhole) return kTop;
    if (kBits == 2 && kPair % kFields % 2 == 0) return kTop - 2;
    return kBits == 8 ? 2 : kTop;
  }
  /// The codes of a pair over `base`.
  template <int kPair>
  GALVANI_DEVICE unsigned over(unsigned base) const {
    if constexpr (kPair < kWhole) {
      constexpr int kAt = at<kPair>();
      const unsigned w = rotate_right<a16_field_at(kBits, kPair % kFields) - kAt>(word[kPair / kFields]);
      return and_or<mask(kBits, kAt)>(w, base);
    } else if constexpr (kBits == 6) {
      constexpr A16Bit kLow = a16_bit(6, kPair, 0, 0), kHigh = a16_bit(6, kPair, 0, 4);
      const unsigned low = and_or<mask(4, kTop)>(rotate_right<kLow.at - kTop>(word[kLow.word]), base);
      return and_or<mask(2, kTop + 4)>(rotate_right<kHigh.at - kTop - 4>(word[kHigh.word]), low);
    } else {
      return bits_from<kPair, 0>(base);
    }
  }
  /// 3 and 5 bits: the last pair, one bit from each word.
  template <int kPair, int kBit>
  GALVANI_DEVICE unsigned bits_from(unsigned sum) const {
    if constexpr (kBit == kBits) {
      return sum;
    } else {
      constexpr A16Bit kFrom = a16_bit(kBits, kPair, 0, kBit);
      return bits_from<kPair, kBit + 1>(
          and_or<mask(1, kTop + kBit)>(rotate_right<kFrom.at - kTop - kBit>(word[kFrom.word]), sum));
    }
  }
};

/// The A fragment of k16 step kStep.
template <int kStep, int kBits, typename T>
GALVANI_DEVICE void a16_fragment(unsigned (&a)[4], const A16Codes<kBits, T>& codes) {
  a[0] = codes.template pair<4 * kStep>();
  a[1] = codes.template pair<4 * kStep + 1>();
  a[2] = codes.template pair<4 * kStep + 2>();
  a[3] = codes.template pair<4 * kStep + 3>();
}

/// Scale and bias of the lane's two rows, in f32.
struct A16Scales {
  float scale[2], bias[2];
};
/// `at`: the first pair of the lane's row in the subgroup, {scale, bias} of row g, then of row g + 8.
template <A16Scale kScale>
GALVANI_DEVICE A16Scales a16_scales(const unsigned char* at) {
  A16Scales s;
  if constexpr (kScale == A16Scale::kF32) {
    const float4 v = *reinterpret_cast<const float4*>(at);
    s.scale[0] = v.x, s.bias[0] = v.y, s.scale[1] = v.z, s.bias[1] = v.w;
  } else {
    const uint2 v = *reinterpret_cast<const uint2*>(at);
    if constexpr (kScale == A16Scale::kBF16) {
      s.scale[0] = __uint_as_float(v.x << 16), s.bias[0] = __uint_as_float(v.x & 0xffff0000u);
      s.scale[1] = __uint_as_float(v.y << 16), s.bias[1] = __uint_as_float(v.y & 0xffff0000u);
    } else {
      const float2 a = __half22float2(*reinterpret_cast<const __half2*>(&v.x));
      const float2 b = __half22float2(*reinterpret_cast<const __half2*>(&v.y));
      s.scale[0] = a.x, s.bias[0] = a.y, s.scale[1] = b.x, s.bias[1] = b.y;
    }
  }
  return s;
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
