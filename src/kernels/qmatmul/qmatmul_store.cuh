#pragma once
// How a finished sum reaches y.
#include "kernels/common/device.cuh"
#include "kernels/qmatmul/qmatmul_cuda_args.h"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// What all weights of a matrix of float codes are yet to be multiplied by. It travels in the place of the scale type,
/// which follows from the number of subgroups there: one more field would change the code of every affine kernel.
GALVANI_DEVICE float qmatmul_factor(const QmatmulArgs& p) { return __uint_as_float(static_cast<unsigned>(p.scale)); }
template <typename T>
GALVANI_DEVICE void qmatmul_store(const QmatmulArgs& p, int token, int row, float value) {
  const long long at = token * p.y_stride + row;
  if (p.y_16) {
    static_cast<T*>(p.y)[at] = from_f32<T>(value);
  } else {
    float* const to = static_cast<float*>(p.y) + at;
    *to = p.add ? *to + value : value;
  }
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
