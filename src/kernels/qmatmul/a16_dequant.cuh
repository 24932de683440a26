#pragma once
// A16 codes to finished weights in A fragments: code · scale + bias, rounded once to the activations' type. For arms
// with many tokens, whose sums run through all of K.
#include "kernels/common/mma.cuh"
#include "kernels/qmatmul/a16_decode.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// Scale and bias of the lane's two rows for one subgroup. When they have the activations' own type (kNative) they are
/// kept doubled for two-element arithmetic, else as f32.
///
/// kBare (bf16, native): codes stay subnormal numbers, which need no offset taken off, and a power of two in the scale
/// makes them weights times 2^−kA16BareLog2 in one instruction; a16_finish_sums takes that out of an arm's sums. All
/// powers of two are exact for scales up to 2^36 and biases from 2^−86.
template <int kBits, typename T, bool kNative, bool kBare = false>
struct A16WeightScales;
constexpr int kA16BareLog2 = 40;
template <int kBits, typename T, bool kNative>
constexpr bool kA16CanBare = kNative&& A16Codes<kBits, T>::kHasBare;

template <int kBits, typename T, bool kBare>
struct A16WeightScales<kBits, T, true, kBare> {
  unsigned scale[2], bias[2];
  GALVANI_DEVICE void load(const unsigned char* unit, int words, int subgroup, int, int lane) {
    const uint2 v = *reinterpret_cast<const uint2*>(unit + words + (subgroup * 8 + lane / 4) * 8);
    scale[0] = __byte_perm(v.x, v.x, 0x1010), bias[0] = __byte_perm(v.x, v.x, 0x3232);
    scale[1] = __byte_perm(v.y, v.y, 0x1010), bias[1] = __byte_perm(v.y, v.y, 0x3232);
    if constexpr (kBare) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        scale[half] = times(scale[half], -A16Codes<kBits, T>::bare_log2(half) - kA16BareLog2);
        bias[half] = times(bias[half], -kA16BareLog2);
      }
    }
  }
  GALVANI_DEVICE unsigned apply(unsigned codes, int row) const { return fma2<T>(codes, scale[row], bias[row]); }

 private:
  GALVANI_DEVICE static unsigned times(unsigned v, int log2) {
    return fma2<T>(v, static_cast<unsigned>(127 + log2) * 0x00800080u, 0x80008000u);
  }
};

template <int kBits, typename T>
struct A16WeightScales<kBits, T, false, false> {
  A16Scales s;
  GALVANI_DEVICE void load(const unsigned char* unit, int words, int subgroup, int type, int lane) {
    const int pair = (subgroup * 8 + lane / 4) * 2;
    if (type == static_cast<int>(A16Scale::kF32))
      s = a16_scales<A16Scale::kF32>(unit + words + pair * 8);
    else if (type == static_cast<int>(A16Scale::kBF16))
      s = a16_scales<A16Scale::kBF16>(unit + words + pair * 4);
    else
      s = a16_scales<A16Scale::kF16>(unit + words + pair * 4);
  }
  GALVANI_DEVICE unsigned apply(unsigned codes, int row) const {
    const float2 q = unpack2<T>(codes);
    return pack2<T>(fmaf(q.x, s.scale[row], s.bias[row]), fmaf(q.y, s.scale[row], s.bias[row]));
  }
};

/// What kBare left in sums of products with such weights.
template <bool kBare, int kCount>
GALVANI_DEVICE void a16_finish_sums(float (&sums)[kCount]) {
  if constexpr (kBare) {
#pragma unroll
    for (float& sum : sums) sum *= 0x1p40f;
  }
}

/// Minus the offset of `half`, twice: what to add to A16Codes::pair to have the codes themselves.
template <int kBits, typename T>
GALVANI_DEVICE unsigned a16_minus_offset(int half) {
  constexpr bool kIsBf16 = A16Codes<kBits, T>::kIsBf16;
  // Powers of two: sign, exponent.
  const auto minus = [](float offset) -> unsigned {
    int log2 = 0;
    for (float v = offset < 0 ? -offset : offset; v > 1.0f; v *= 0.5f) ++log2;
    const unsigned bits = kIsBf16 ? static_cast<unsigned>(127 + log2) << 7 : static_cast<unsigned>(15 + log2) << 10;
    const unsigned sign = offset < 0 ? 0u : 0x8000u;
    return (bits | sign) * 0x10001u;
  };
  return half == 0 ? minus(A16Codes<kBits, T>::offset(0)) : minus(A16Codes<kBits, T>::offset(1));
}

/// The weights of k16 step kStep.
template <int kStep, int kBits, typename T, bool kNative, bool kBare>
GALVANI_DEVICE void a16_weights(unsigned (&a)[4], const A16Codes<kBits, T>& codes,
                                const A16WeightScales<kBits, T, kNative, kBare>& scales) {
  if constexpr (kBare) {
    a[0] = scales.apply(codes.template bare<4 * kStep>(), 0);
    a[1] = scales.apply(codes.template bare<4 * kStep + 1>(), 1);
    a[2] = scales.apply(codes.template bare<4 * kStep + 2>(), 0);
    a[3] = scales.apply(codes.template bare<4 * kStep + 3>(), 1);
  } else {
    a16_fragment<kStep>(a, codes);
#pragma unroll
    for (int r = 0; r < 4; ++r) a[r] = scales.apply(add2<T>(a[r], a16_minus_offset<kBits, T>(r % 2)), r % 2);
  }
}

/// Whether k16 step `step` begins a subgroup.
GALVANI_DEVICE bool a16_begins_subgroup(int step, int subgroups) { return step * subgroups % 4 == 0; }

}  // namespace galvani::kernels::GALVANI_CUDA_NS
