#pragma once
/// Float codes in A16: the bit formulas, shared by the packer, the kernels and the tests. Pure constexpr, no includes
/// but the layout.
///
/// A weight is factor · scale · code; code E2M1 (sign, 2 exponent bits, 1 of mantissa; OCP Microscaling 1.0) or E4M3.
/// A code becomes a 16-bit float by moving its bits: mantissa and exponent to the top of the float's mantissa and the
/// bottom of its exponent, the sign to the top. The result is code · 2^-a16_float_exponent, also for the code's
/// subnormals, which become the float's; one multiplication by a power of two makes it the code, exactly. Kernels that
/// want finished weights multiply by scale · 2^exponent instead, once.
///
/// The sign is not beside the other bits, so fields are arranged such that few rotations bring a pair to bf16: in E2M1
/// one, one, two and two for the fields of a word, in E4M3 one and two. For f16 it is one or two more.
#include "kernels/qmatmul/a16_layout.h"

namespace galvani::kernels {

/// What a kernel's instance decodes, as one template argument: the bits of affine codes, or one of these.
constexpr int kA16E2M1 = 32 + 4, kA16E4M3 = 32 + 8;
constexpr bool a16_is_float(int instance) { return instance >= 32; }
constexpr int a16_bits(int instance) { return instance % 32; }
constexpr int a16_instance(const A16Format& f) {
  return f.code == A16Code::kE2M1 ? kA16E2M1 : f.code == A16Code::kE4M3 ? kA16E4M3 : f.bits;
}

/// Pairs a word holds.
constexpr int a16_float_fields(int instance) { return instance == kA16E2M1 ? 4 : 2; }
/// Where bit `bit` (0 = lowest of the mantissa, last = sign) of field `field`'s even code stands in its word; the odd
/// code's stands 16 bits further, modulo 32.
constexpr int a16_float_from(int instance, int field, int bit) {
  constexpr int kE2M1[4][4] = {{6, 7, 8, 15}, {9, 10, 11, 18}, {12, 13, 14, 16}, {3, 4, 5, 17}};
  constexpr int kE4M3[2][8] = {{4, 5, 6, 7, 8, 9, 10, 15}, {12, 13, 14, 19, 16, 17, 18, 27}};
  return instance == kA16E2M1 ? kE2M1[field][bit] : kE4M3[field][bit];
}
constexpr A16Bit a16_float_bit(int instance, int pair, int half, int bit) {
  const int fields = a16_float_fields(instance);
  return {pair / fields, (a16_float_from(instance, pair % fields, bit) + 16 * half) % 32};
}

constexpr int a16_mantissa(bool bf16) { return bf16 ? 7 : 10; }
constexpr int a16_bias(bool bf16) { return bf16 ? 127 : 15; }
/// Where that bit goes in a 16-bit float.
constexpr int a16_float_to(int instance, bool bf16, int bit) {
  const int mantissa = instance == kA16E2M1 ? 1 : 3;
  return bit == a16_bits(instance) - 1 ? 15 : a16_mantissa(bf16) - mantissa + bit;
}
/// The moved bits are code · 2^-exponent.
constexpr int a16_float_exponent(int instance, bool bf16) { return a16_bias(bf16) - (instance == kA16E2M1 ? 1 : 7); }
/// 2^exponent, twice: what makes moved bits codes.
constexpr unsigned a16_float_multiplier(int instance, bool bf16) {
  return static_cast<unsigned>((a16_float_exponent(instance, bf16) + a16_bias(bf16)) << a16_mantissa(bf16)) * 0x10001u;
}

/// The bits of a field that a right rotation by `by` brings to their place, as a mask of both halves.
constexpr unsigned a16_float_mask(int instance, bool bf16, int field, int by) {
  unsigned mask = 0;
  for (int bit = 0; bit < a16_bits(instance); ++bit) {
    const int to = a16_float_to(instance, bf16, bit);
    if ((a16_float_from(instance, field, bit) - to + 32) % 32 == by) mask |= 0x10001u << to;
  }
  return mask;
}

/// The moved bits of field kField of `word`: two packed floats, the even column low.
template <int kInstance, bool kBf16, int kField, int kBy = 0>
constexpr unsigned a16_float_pair(unsigned word) {
  if constexpr (kBy == 32) {
    return 0;
  } else {
    constexpr unsigned kMask = a16_float_mask(kInstance, kBf16, kField, kBy);
    const unsigned rest = a16_float_pair<kInstance, kBf16, kField, kBy + 1>(word);
    if constexpr (kMask == 0) return rest;
    if constexpr (kBy == 0) return (word & kMask) | rest;
    return ((word >> kBy | word << ((32 - kBy) % 32)) & kMask) | rest;
  }
}

/// A scale's byte (the lowest of `shifted` after a shift right by 8 · place) as the bits of an f32.
constexpr unsigned a16_scale_f32(A16Scale scale, unsigned bytes, int place) {
  const int to = scale == A16Scale::kE8M0 ? 23 : 20, by = to - 8 * place;
  const unsigned moved = by >= 0 ? bytes << by : bytes >> -by;
  // E5M3: its exponent field is 96 + E, E below 32.
  return scale == A16Scale::kE8M0 ? moved & 0x7f800000u : (moved & 0x0ff00000u) | 0x30000000u;
}
/// scale · 2^a16_float_exponent as the bits of a 16-bit float, twice. Right for the scales inside a16_float_window.
constexpr unsigned a16_scale_16(int instance, bool bf16, A16Scale scale, unsigned byte) {
  const int mantissa = a16_mantissa(bf16), add = a16_float_exponent(instance, bf16) + a16_bias(bf16);
  const unsigned bits = scale == A16Scale::kE8M0
                            ? (byte + static_cast<unsigned>(add - 127)) << mantissa
                            : (byte << (mantissa - 3)) + (static_cast<unsigned>(add - 31) << mantissa);
  return bits * 0x10001u;
}

/// The powers of two 2^lowest … 2^highest as E8M0 scales whose products with every code are exact in a 16-bit float,
/// and whose a16_scale_16 is a normal number. All of E5M3's that stand for an E4M3 scale are inside.
struct A16Window {
  int lowest, highest;
};
constexpr A16Window a16_float_window(int instance, bool bf16) {
  if (instance == kA16E2M1) return {bf16 ? -125 : -23, 1};  // 0.5 … 6
  return {bf16 ? -117 : -15, 7};                            // 2^-9 … 448
}
/// The byte where no weight is: padding, and groups of zeros. Any that is inside the windows would do.
constexpr unsigned a16_float_padding(A16Scale scale) { return scale == A16Scale::kE8M0 ? 127 : 248; }

}  // namespace galvani::kernels
