/// One row of input: rounded to the run's arithmetic and summed over groups of 16 columns. Highway, chosen at run time.
#include "kernels/common/simd_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/qmatmul/input_simd.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "core/dtype.h"
#include "kernels/qmatmul/input_simd.h"

HWY_BEFORE_NAMESPACE();
namespace galvani::kernels {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, 16>;
using U32 = hn::RebindToUnsigned<F32>;
using F32V = hn::Vec<F32>;

// Round to nearest even, NaN stays NaN: the upper half of the result's bits is the bf16 (core/dtype.h).
HWY_INLINE hn::Vec<U32> RoundedBits(F32V x) {
  const U32 u;
  const auto bits = hn::BitCast(u, x);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(u, 1));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(u, 0x7fff)));
  const auto nan = hn::MaskFromVec(hn::BitCast(u, hn::VecFromMask(F32(), hn::IsNaN(x))));
  return hn::And(hn::IfThenElse(nan, hn::Or(bits, hn::Set(u, 0x400000)), rounded), hn::Set(u, 0xffff0000));
}

// Sixteen columns: stores them as bf16 and gives the sum of what was stored. The order of the sum is fixed by the
// number of lanes alone, so a row gives the same bits wherever it stands.
HWY_INLINE float Bf16Group(const float* HWY_RESTRICT x, uint16_t* HWY_RESTRICT out) {
  const F32 d;
  const U32 u;
  const hn::Rebind<uint16_t, U32> h;
  F32V sum = hn::Zero(d);
  for (size_t i = 0; i < 16; i += hn::Lanes(d)) {
    const auto bits = RoundedBits(hn::LoadU(d, x + i));
    hn::StoreU(hn::TruncateTo(h, hn::ShiftRight<16>(bits)), h, out + i);
    sum = hn::Add(sum, hn::BitCast(d, bits));
  }
  (void)u;
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

HWY_INLINE float F32Group(const float* HWY_RESTRICT x) {
  const F32 d;
  F32V sum = hn::Zero(d);
  for (size_t i = 0; i < 16; i += hn::Lanes(d)) sum = hn::Add(sum, hn::LoadU(d, x + i));
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

void Bf16Row(const float* HWY_RESTRICT x, int64_t k, uint16_t* HWY_RESTRICT out, float* HWY_RESTRICT sums) {
  int64_t c = 0;
  for (; c + 16 <= k; c += 16) *sums++ = Bf16Group(x + c, out + c);
  if (c == k) return;
  float tail[16] = {};
  for (int64_t i = c; i < k; ++i) tail[i - c] = x[i];
  *sums = Bf16Group(tail, out + c);  // out is padded beyond k
}

void F32Row(const float* HWY_RESTRICT padded, int64_t k, float* HWY_RESTRICT sums) {
  for (int64_t c = 0; c < k; c += 16) *sums++ = F32Group(padded + c);
}

}  // namespace HWY_NAMESPACE
}  // namespace galvani::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace galvani::kernels {
HWY_EXPORT(Bf16Row);
HWY_EXPORT(F32Row);
void bf16_row(const float* x, int64_t k, uint16_t* out, float* sums) { HWY_DYNAMIC_DISPATCH(Bf16Row)(x, k, out, sums); }
void f32_row_sums(const float* padded, int64_t k, float* sums) { HWY_DYNAMIC_DISPATCH(F32Row)(padded, k, sums); }
}  // namespace galvani::kernels
#endif
