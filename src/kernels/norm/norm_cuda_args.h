#pragma once
/// What the CUDA norm kernels take; formula and contract are norm.h's. Device pointers; strides in elements.
#include "kernels/common/store_type.h"

namespace galvani::kernels {

/// Longest rows that a block holds in registers, eight and sixteen elements a thread; longer ones wait in shared
/// memory.
constexpr int kNormEight = 8192, kNormSixteen = 16384;

/// w: [dim] or null (1).
struct NormWeights {
  const float* w = nullptr;
  float eps = 1e-6f;
  bool plus_one = false;
};

/// With `add` null: out = norm(x). Else first x += add' with add' = post_norm(add + bias) or add + bias, then, when out
/// is set, out = norm(x). x keeps f32.
struct NormArgs {
  float* x = nullptr;  ///< [rows, dim]
  long long x_stride = 0;
  int rows = 0, dim = 0;
  const float* add = nullptr;  ///< [rows, dim]
  long long add_stride = 0;
  const float* bias = nullptr;  ///< [dim] or null
  bool post = false;            ///< post_norm is on
  NormWeights post_norm;
  bool normalise = true;  ///< false: out = x, rounded
  NormWeights norm;
  void* out = nullptr;  ///< x itself (same stride, f32), or no part of it
  long long out_stride = 0;
  StoreType out_type = StoreType::kF32;
  /// Row r of x stands at x[gather[r]] when set (the logit rows of a batch); only without `add`. Like weights and bias
  /// no kernel may have written it (store.cuh: load_early).
  const int* gather = nullptr;
};

}  // namespace galvani::kernels
