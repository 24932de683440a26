#include <cmath>

#include "core/parallel.h"
#include "kernels/norm/norm.h"

namespace galvani::kernels {
namespace {

void norm_rows(const float* x, int64_t rows, int64_t dim, int64_t x_stride, const float* w, NormParams params, float* y,
               int64_t y_stride, bool accumulate) {
  parallel_for(rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      const float* in = x + r * x_stride;
      float* out = y + r * y_stride;
      float sum = 0;
      for (int64_t i = 0; i < dim; ++i) sum += in[i] * in[i];
      const float inverse = 1.0f / std::sqrt(sum / static_cast<float>(dim) + params.eps);
      for (int64_t i = 0; i < dim; ++i) {
        const float weight = w ? (params.plus_one ? 1.0f + w[i] : w[i]) : 1.0f;
        out[i] = in[i] * inverse * weight + (accumulate ? out[i] : 0.0f);
      }
    }
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
