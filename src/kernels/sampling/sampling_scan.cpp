#include "kernels/sampling/sampling_scan.h"

#include <algorithm>
#include <limits>

#include "kernels/common/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/sampling/sampling_scan.cpp"
#include "hwy/foreach_target.h"

#include "kernels/common/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace galvani::kernels::HWY_NAMESPACE {

constexpr float kNone = -std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504088896341f;

HWY_INLINE F32Vec load_up_to(F32 d, const float* p, int64_t n, float fill) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  return n >= lanes ? hn::LoadU(d, p) : load_partial(d, p, static_cast<size_t>(n), fill);
}

LogitScan scan(const float* x, int64_t n) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  F32Vec best = hn::Set(d, kNone), other = best, odd = hn::Zero(d);
  const F32Vec largest = hn::Set(d, std::numeric_limits<float>::max());
  // x ≤ FLT_MAX fails for +infinity and NaN alike.
  const auto check = [&](F32Vec v) HWY_ATTR { odd = hn::Or(odd, hn::VecFromMask(d, hn::Not(hn::Le(v, largest)))); };
  int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const F32Vec a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
    check(a);
    check(b);
    best = hn::Max(a, best);
    other = hn::Max(b, other);
  }
  for (; i < n; i += lanes) {
    const F32Vec a = load_up_to(d, x + i, n - i, kNone);
    check(a);
    best = hn::Max(a, best);
  }
  const hn::RebindToUnsigned<F32> du;
  const bool sane = hn::AllTrue(du, hn::Eq(hn::BitCast(du, odd), hn::Zero(du)));
  return {hn::GetLane(hn::MaxOfLanes(d, hn::Max(best, other))), !sane};
}

/// e^((x − peak) / temperature), in the base that exp2_nonpositive takes.
HWY_INLINE F32Vec weight_of(F32 d, F32Vec x, F32Vec peak, F32Vec temperature) {
  return exp2_nonpositive(d, hn::Mul(hn::Div(hn::Sub(x, peak), temperature), hn::Set(d, kLog2E)));
}

double weights(const float* x, int64_t n, float peak, float temperature, float* out, double* block_sums) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const F32Vec top = hn::Set(d, peak), t = hn::Set(d, temperature);
  double total = 0;
  for (int64_t block = 0; block * kWeightBlock < n; ++block) {
    const int64_t begin = block * kWeightBlock, end = std::min(n, begin + kWeightBlock);
    F32Vec sum = hn::Zero(d);
    for (int64_t i = begin; i < end; i += lanes) {
      const F32Vec w = weight_of(d, load_up_to(d, x + i, end - i, kNone), top, t);
      sum = hn::Add(sum, w);
      if (end - i >= lanes) {
        hn::StoreU(w, d, out + i);
      } else {
        store_partial(d, w, out + i, static_cast<size_t>(end - i));
      }
    }
    total += block_sums[block] = hn::GetLane(hn::SumOfLanes(d, sum));
  }
  return total;
}

double sum_of_exp(const float* x, int64_t n, float peak) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const F32Vec top = hn::Set(d, peak), one = hn::Set(d, 1.0f);
  double total = 0;
  for (int64_t begin = 0; begin < n; begin += kWeightBlock) {
    const int64_t end = std::min(n, begin + kWeightBlock);
    F32Vec sum = hn::Zero(d);
    for (int64_t i = begin; i < end; i += lanes)
      sum = hn::Add(sum, weight_of(d, load_up_to(d, x + i, end - i, kNone), top, one));
    total += hn::GetLane(hn::SumOfLanes(d, sum));
  }
  return total;
}

int64_t above(const float* x, int64_t from, int64_t n, float bound, int32_t* ids, int64_t room, int64_t& found) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const F32Vec limit = hn::Set(d, bound);
  found = 0;
  int64_t i = from;
  for (; i < n; i += lanes) {
    if (found + lanes > room) return i;
    if (hn::AllFalse(d, hn::Gt(load_up_to(d, x + i, n - i, kNone), limit))) continue;
    for (int64_t k = i; k < std::min(n, i + lanes); ++k)
      if (x[k] > bound) ids[found++] = static_cast<int32_t>(k);
  }
  return n;
}

}  // namespace galvani::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace galvani::kernels {
namespace {
HWY_EXPORT(scan);
HWY_EXPORT(weights);
HWY_EXPORT(sum_of_exp);
HWY_EXPORT(above);
}  // namespace

LogitScan scan_logits(const float* logits, int64_t n) { return HWY_DYNAMIC_DISPATCH(scan)(logits, n); }
double softmax_weights(const float* logits, int64_t n, float peak, float temperature, float* out, double* block_sums) {
  return HWY_DYNAMIC_DISPATCH(weights)(logits, n, peak, temperature, out, block_sums);
}
double softmax_sum(const float* logits, int64_t n, float peak) {
  return HWY_DYNAMIC_DISPATCH(sum_of_exp)(logits, n, peak);
}
int64_t collect_above(const float* values, int64_t from, int64_t n, float bound, int32_t* ids, int64_t room,
                      int64_t& found) {
  return HWY_DYNAMIC_DISPATCH(above)(values, from, n, bound, ids, room, found);
}

}  // namespace galvani::kernels
#endif  // HWY_ONCE
