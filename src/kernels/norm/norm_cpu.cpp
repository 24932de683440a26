#include "kernels/norm/norm.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "kernels/common/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/norm/norm_cpu.cpp"
#include "hwy/foreach_target.h"

#include "kernels/common/vector_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace galvani::kernels::HWY_NAMESPACE {

/// Σ x² in the fixed order of four vector accumulators.
float sum_of_squares(const float* x, int64_t dim) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  F32Vec s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  int64_t i = 0;
  for (; i + 4 * lanes <= dim; i += 4 * lanes) {
    const F32Vec a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
    const F32Vec c = hn::LoadU(d, x + i + 2 * lanes), e = hn::LoadU(d, x + i + 3 * lanes);
    s0 = hn::MulAdd(a, a, s0);
    s1 = hn::MulAdd(b, b, s1);
    s2 = hn::MulAdd(c, c, s2);
    s3 = hn::MulAdd(e, e, s3);
  }
  for (; i < dim; i += lanes) {
    const F32Vec a = i + lanes <= dim ? hn::LoadU(d, x + i) : load_partial(d, x + i, static_cast<size_t>(dim - i));
    s0 = hn::MulAdd(a, a, s0);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
}

/// y = (accumulate ? y : 0) + x · inverse · w'.
template <bool kAccumulate>
void scale_row(const float* x, int64_t dim, float inverse, const float* w, bool plus_one, float* y) {
  const F32 d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const F32Vec factor = hn::Set(d, inverse), one = hn::Set(d, 1.0f);
  for (int64_t i = 0; i < dim; i += lanes) {
    const size_t n = static_cast<size_t>(std::min(lanes, dim - i));
    const bool full = n == static_cast<size_t>(lanes);
    F32Vec weight = one;
    if (w) weight = full ? hn::LoadU(d, w + i) : load_partial(d, w + i, n);
    if (w && plus_one) weight = hn::Add(weight, one);
    F32Vec v = hn::Mul(hn::Mul(full ? hn::LoadU(d, x + i) : load_partial(d, x + i, n), factor), weight);
    if (kAccumulate) v = hn::Add(full ? hn::LoadU(d, y + i) : load_partial(d, y + i, n), v);
    if (full) {
      hn::StoreU(v, d, y + i);
    } else {
      store_partial(d, v, y + i, n);
    }
  }
}

void norm_row(const float* x, int64_t dim, const float* w, NormParams params, float* y, bool accumulate) {
  const float inverse = 1.0f / std::sqrt(sum_of_squares(x, dim) / static_cast<float>(dim) + params.eps);
  if (accumulate) {
    scale_row<true>(x, dim, inverse, w, params.plus_one, y);
  } else {
    scale_row<false>(x, dim, inverse, w, params.plus_one, y);
  }
}

}  // namespace galvani::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace galvani::kernels {
namespace {

HWY_EXPORT(norm_row);
constexpr int64_t kElementsPerTask = 16384;  // below this a thread costs more than it saves

void norm_rows(const float* x, int64_t rows, int64_t dim, int64_t x_stride, const float* w, NormParams params, float* y,
               int64_t y_stride, bool accumulate) {
  if (dim <= 0) return;
  parallel_for(rows, std::max<int64_t>(1, kElementsPerTask / dim), [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r)
      HWY_DYNAMIC_DISPATCH(norm_row)(x + r * x_stride, dim, w, params, y + r * y_stride, accumulate);
  });
}

}  // namespace

void rms_norm(const float* x, int64_t rows, int64_t dim, int64_t x_stride, const float* w, NormParams params, float* y,
              int64_t y_stride) {
  norm_rows(x, rows, dim, x_stride, w, params, y, y_stride, false);
}

void rms_norm_add(const float* x, int64_t rows, int64_t dim, int64_t x_stride, const float* w, NormParams params,
                  float* residual, int64_t residual_stride) {
  norm_rows(x, rows, dim, x_stride, w, params, residual, residual_stride, true);
}

}  // namespace galvani::kernels
#endif  // HWY_ONCE
