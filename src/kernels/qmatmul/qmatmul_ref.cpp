/// The reference arm: f64, one row at a time, from the stored bits.
#include <vector>

#include "kernels/qmatmul/arms.h"

namespace galvani::kernels {

void qmatmul_ref(const ArmCall& call) {
  const PackedMatrix& w = call.w;
  std::vector<float> weights(static_cast<size_t>(w.cols));
  for (int64_t r = call.b0 * kBlockRows; r < std::min(w.rows, call.b1 * kBlockRows); ++r) {
    qmatmul_unpack(w, r, r + 1, weights.data());
    for (int64_t t = 0; t < call.x.m; ++t) {
      const float* x = call.x.f32_row(t);
      double sum = 0;
      for (int64_t c = 0; c < w.cols; ++c) sum += static_cast<double>(weights[static_cast<size_t>(c)]) * x[c];
      call.y[t * call.y_stride + r] = static_cast<float>(sum);
    }
  }
}

}  // namespace galvani::kernels
