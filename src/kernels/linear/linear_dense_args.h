#pragma once
/// y[m, n] = Σ_k x[m, k] · w[n, k] for weights that no packed form takes. Device pointers; strides in elements.
#include "kernels/common/store_type.h"

namespace galvani::kernels {

struct LinearDenseArgs {
  const void* x = nullptr;  ///< [rows, k] of x_type
  StoreType x_type = StoreType::kBF16;
  long long x_stride = 0;
  const void* w = nullptr;  ///< [n, k] of w_type, rows without gaps
  StoreType w_type = StoreType::kF32;
  float* y = nullptr;  ///< [rows, n]
  long long y_stride = 0;
  int rows = 0, n = 0, k = 0;
};

}  // namespace galvani::kernels
