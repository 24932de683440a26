#pragma once
/// RMS normalisation of rows of f32.
///
/// y[r, i] = x[r, i] / sqrt(mean_j x[r, j]² + eps) · w'[i],  w' = w, 1 + w (zero-centred: gemma3, qwen3_next), or 1 (no
/// w). Sources: Zhang and Sennrich 2019, eq. 4; where "1 +" applies is a fact of each family's checkpoints. Statistics
/// and products are f32. A row's result depends on that row alone, bit for bit. NaN propagates to its whole row; Σ x²
/// beyond f32 becomes infinity and the row 0, as in the references that take f32 statistics.
#include <cstdint>

namespace galvani::kernels {

struct NormParams {
  float eps = 1e-6f;
  bool plus_one = false;  ///< the file stores w − 1
};

/// x: [rows, dim], row stride x_stride elements; w: [dim] or null; y: [rows, dim], may be x itself (same stride).
void rms_norm(const float* x, int64_t rows, int64_t dim, int64_t x_stride, const float* w, NormParams params, float* y,
              int64_t y_stride);

/// residual[r, i] += rms_norm(x)[r, i]: the norm after a sub-layer (gemma). residual must not overlap x.
void rms_norm_add(const float* x, int64_t rows, int64_t dim, int64_t x_stride, const float* w, NormParams params,
                  float* residual, int64_t residual_stride);

/// The same formula in f64, y in f64: [rows, dim] contiguous. For tests.
void rms_norm_ref(const float* x, int64_t rows, int64_t dim, int64_t x_stride, const float* w, NormParams params,
                  double* y);

}  // namespace galvani::kernels
