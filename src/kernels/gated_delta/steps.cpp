// Convolution, L2 norm and gated norm of the gated delta net.
#include "kernels/gated_delta/steps.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/gated_delta/steps.cpp"
#include "hwy/foreach_target.h"

#include "kernels/common/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace galvani::kernels::HWY_NAMESPACE {

HWY_INLINE F32Vec load_some(F32 d, const float* p, size_t n) {
  return n == hn::Lanes(d) ? hn::LoadU(d, p) : load_partial(d, p, n);
}
HWY_INLINE void store_some(F32 d, F32Vec v, float* p, size_t n) {
  if (n == hn::Lanes(d)) {
    hn::StoreU(v, d, p);
  } else {
    store_partial(d, v, p, n);
  }
}

void convolve(const float* const* rows, const float* taps, int64_t channels, int kernel, int64_t n, float* u) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const F32Vec one = hn::Set(d, 1.0f);
  for (int64_t c = 0; c < n; c += lanes) {
    const auto width = static_cast<size_t>(std::min(lanes, n - c));
    F32Vec sum = hn::Mul(load_some(d, taps + c, width), load_some(d, rows[0] + c, width));
    for (int j = 1; j < kernel; ++j)
      sum = hn::MulAdd(load_some(d, taps + j * channels + c, width), load_some(d, rows[j] + c, width), sum);
    store_some(d, hn::Div(sum, hn::Add(one, exp_full(d, hn::Neg(sum)))), u + c, width);
  }
}

float square_sum(const float* x, int64_t dim) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  F32Vec even = hn::Zero(d), odd = hn::Zero(d);
  for (int64_t i = 0; i < dim; i += 2 * lanes) {
    const F32Vec a = load_some(d, x + i, static_cast<size_t>(std::min(lanes, dim - i)));
    even = hn::MulAdd(a, a, even);
    if (i + lanes >= dim) break;
    const F32Vec b = load_some(d, x + i + lanes, static_cast<size_t>(std::min(lanes, dim - i - lanes)));
    odd = hn::MulAdd(b, b, odd);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

void normalise(float* x, int64_t dim, float factor) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const F32Vec by = hn::Set(d, factor / std::sqrt(square_sum(x, dim) + 1e-6f));
  for (int64_t i = 0; i < dim; i += lanes) {
    const auto width = static_cast<size_t>(std::min(lanes, dim - i));
    store_some(d, hn::Mul(load_some(d, x + i, width), by), x + i, width);
  }
}

void finish(float* o, const float* z, const float* norm, int64_t dim, float eps, bool sigmoid_gate) {
  const F32 d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const F32Vec inverse = hn::Set(d, 1.0f / std::sqrt(square_sum(o, dim) / static_cast<float>(dim) + eps));
  for (int64_t i = 0; i < dim; i += lanes) {
    const auto width = static_cast<size_t>(std::min(lanes, dim - i));
    const F32Vec gate = load_some(d, z + i, width), open = sigmoid(d, gate);
    const F32Vec normed = hn::Mul(hn::Mul(load_some(d, o + i, width), inverse), load_some(d, norm + i, width));
    store_some(d, hn::Mul(normed, sigmoid_gate ? open : hn::Mul(gate, open)), o + i, width);
  }
}

}  // namespace galvani::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace galvani::kernels {
namespace {
HWY_EXPORT(convolve);
HWY_EXPORT(normalise);
HWY_EXPORT(finish);
}  // namespace

void delta_convolve(const float* const* rows, const float* taps, int64_t channels, int kernel, int64_t n, float* u) {
  HWY_DYNAMIC_DISPATCH(convolve)(rows, taps, channels, kernel, n, u);
}
void delta_normalise(float* x, int64_t dim, float factor) { HWY_DYNAMIC_DISPATCH(normalise)(x, dim, factor); }
void delta_finish(float* o, const float* z, const float* norm, int64_t dim, float eps, bool sigmoid_gate) {
  HWY_DYNAMIC_DISPATCH(finish)(o, z, norm, dim, eps, sigmoid_gate);
}

}  // namespace galvani::kernels
#endif  // HWY_ONCE
