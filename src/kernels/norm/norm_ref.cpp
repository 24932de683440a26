#include <cmath>

#include "kernels/norm/norm.h"

namespace galvani::kernels {

void rms_norm_ref(const float* x, int64_t rows, int64_t dim, int64_t x_stride, const float* w, NormParams params,
                  double* y) {
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * x_stride;
    double sum = 0;
    for (int64_t i = 0; i < dim; ++i) sum += double{row[i]} * row[i];
    const double inverse = 1.0 / std::sqrt(sum / static_cast<double>(dim) + params.eps);
    for (int64_t i = 0; i < dim; ++i) {
      const double weight = (w ? double{w[i]} : 1.0) + (w && params.plus_one ? 1.0 : 0.0);
      y[r * dim + i] = row[i] * inverse * weight;
    }
  }
}

}  // namespace galvani::kernels
