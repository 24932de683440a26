// Per-target header, included once for each instruction set: exp, tanh and sigmoid of f32 vectors, and partial loads.
// Reduction and polynomials as in Cephes' expf.c and tanhf.c (Moshier); error bounds measured in tests/kernels.
#if defined(GALVANI_VECTOR_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GALVANI_VECTOR_MATH_INL_H_
#undef GALVANI_VECTOR_MATH_INL_H_
#else
#define GALVANI_VECTOR_MATH_INL_H_
#endif

#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace galvani::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using F32Vec = hn::Vec<F32>;

/// The first n < Lanes elements at p, the rest `fill`. Reads nothing beyond them.
HWY_INLINE F32Vec load_partial(F32 d, const float* p, size_t n, float fill = 0.0f) {
  HWY_ALIGN float buffer[hn::MaxLanes(F32())];
  for (float& value : buffer) value = fill;
  std::memcpy(buffer, p, n * sizeof(float));
  return hn::Load(d, buffer);
}

/// Writes the first n < Lanes elements of v to p and nothing beyond them.
HWY_INLINE void store_partial(F32 d, F32Vec v, float* p, size_t n) {
  HWY_ALIGN float buffer[hn::MaxLanes(F32())];
  hn::Store(v, d, buffer);
  std::memcpy(p, buffer, n * sizeof(float));
}

/// min(x, high) and max(x, low) that keep a NaN in x. x86 returns the second operand when one is NaN and NEON the NaN;
/// Highway's scalar target returns the other operand.
HWY_INLINE F32Vec at_most(F32 d, F32Vec x, float high) {
  const F32Vec bound = hn::Set(d, high);
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Gt(x, bound), bound, x);
#else
  return hn::Min(bound, x);
#endif
}
HWY_INLINE F32Vec at_least(F32 d, F32Vec x, float low) {
  const F32Vec bound = hn::Set(d, low);
#if HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Lt(x, bound), bound, x);
#else
  return hn::Max(bound, x);
#endif
}

/// x = n·ln 2 + r, |r| ≤ ½ ln 2: returns e^r, and n as the low bits of `biased` (an f32 near 1.5·2^23).
/// The product n·kHigh is exact, with or without a fused multiply-add.
HWY_INLINE F32Vec exp_reduced(F32 d, F32Vec x, F32Vec& biased) {
  const F32Vec magic = hn::Set(d, 12582912.0f);
  biased = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), magic);
  const F32Vec n = hn::Sub(biased, magic);
  F32Vec r = hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x);
  r = hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), r);
  F32Vec p = hn::Set(d, 1.9875691500e-4f);
  p = hn::MulAdd(p, r, hn::Set(d, 1.3981999507e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 8.3334519073e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1665795894e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.6666665459e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 5.0000001201e-1f));
  return hn::Add(hn::MulAdd(p, hn::Mul(r, r), r), hn::Set(d, 1.0f));
}

/// e^x over all of f32: subnormal results, overflow to infinity, e^−inf = 0, NaN stays NaN.
HWY_INLINE F32Vec exp_full(F32 d, F32Vec x) {
  x = at_most(d, at_least(d, x, -105.0f), 89.0f);
  F32Vec biased;
  const F32Vec y = exp_reduced(d, x, biased);
  const hn::RebindToSigned<F32> di;
  const auto n = hn::Sub(hn::BitCast(di, biased), hn::Set(di, 0x4b400000));
  const auto half = hn::ShiftRight<1>(n), rest = hn::Sub(n, half), bias = hn::Set(di, 127);
  const F32Vec a = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
  const F32Vec b = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(rest, bias)));
  return hn::Mul(hn::Mul(y, a), b);
}

/// 2^x for x ≤ 0, as softmax needs it: results below 2^−126 become 0. NaN stays NaN. Within 2 ulp.
HWY_INLINE F32Vec exp2_nonpositive(F32 d, F32Vec x) {
  // 1.5·2^23 + 127: the low bits of `biased` are the exponent field of 2^n. From −127 on that field is 0, and so is
  // 2^n.
  const F32Vec magic = hn::Set(d, 12583039.0f);
  x = at_least(d, x, -127.0f);
  const F32Vec biased = hn::Add(x, magic);
  const F32Vec r = hn::Sub(x, hn::Sub(biased, magic));
  // (2^r − 1) / r on [−½, ½], least relative error of 2^r: 2.0e-9 before rounding of the coefficients.
  F32Vec p = hn::Set(d, 0.00015353362f);
  p = hn::MulAdd(p, r, hn::Set(d, 0.00133988739f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.00961843692f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.0555033237f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.240226477f));
  p = hn::MulAdd(p, r, hn::Set(d, 0.693147182f));
  const F32Vec y = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  const hn::RebindToSigned<F32> di;
  return hn::Mul(y, hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(di, biased))));
}

HWY_INLINE F32Vec sigmoid(F32 d, F32Vec x) {
  const F32Vec one = hn::Set(d, 1.0f);
  return hn::Div(one, hn::Add(one, exp_full(d, hn::Neg(x))));
}

HWY_INLINE F32Vec tanh(F32 d, F32Vec x) {
  const F32Vec one = hn::Set(d, 1.0f);
  const F32Vec size = hn::Abs(x), z = hn::Mul(x, x);
  F32Vec p = hn::Set(d, -5.70498872745e-3f);
  p = hn::MulAdd(p, z, hn::Set(d, 2.06390887954e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, -5.37397155531e-2f));
  p = hn::MulAdd(p, z, hn::Set(d, 1.33314422036e-1f));
  p = hn::MulAdd(p, z, hn::Set(d, -3.33332819422e-1f));
  const F32Vec small = hn::MulAdd(hn::Mul(p, z), x, x);
  const F32Vec bounded = at_most(d, size, 10.0f);  // tanh is 1 in f32 from 9.01 on
  const F32Vec e = exp_full(d, hn::Add(bounded, bounded));
  const F32Vec large = hn::Sub(one, hn::Div(hn::Set(d, 2.0f), hn::Add(e, one)));
  return hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.625f)), small, hn::CopySignToAbs(large, x));
}

}  // namespace galvani::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // GALVANI_VECTOR_MATH_INL_H_
