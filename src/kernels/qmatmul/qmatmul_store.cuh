#pragma once
// How a finished sum reaches y.
#include "kernels/common/device.cuh"
#include "kernels/qmatmul/qmatmul_cuda_args.h"

namespace galvani::kernels::GALVANI_CUDA_NS {

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
