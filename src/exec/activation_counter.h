#pragma once
/// Counts activations that a run's arithmetic cannot hold, where they enter matrix products.
#include <cmath>
#include <cstdint>

#include "exec/ops.h"

namespace galvani::exec {

/// Largest finite value of the arithmetic: 65504 for f16, f32's for the others (bf16 has f32's range).
inline float largest_finite(kernels::Arithmetic arithmetic) {
  return arithmetic == kernels::Arithmetic::kF16 ? 65504.0f : 3.4028235e38f;
}

/// Non-finite: NaN or infinite already; saturated: finite, but beyond what the arithmetic holds.
inline void count_activation(const float* x, int64_t rows, int64_t cols, int64_t stride, kernels::Arithmetic arithmetic,
                             ActivationCounters& counters) {
  const float largest = largest_finite(arithmetic);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < cols; ++c) {
      const float value = x[r * stride + c];
      counters.non_finite += !std::isfinite(value);
      counters.saturated += std::isfinite(value) && std::fabs(value) > largest;
    }
  }
  counters.values += static_cast<uint64_t>(rows * cols);
}

}  // namespace galvani::exec
