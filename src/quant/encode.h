#pragma once
/// Weights to MLX codes: the encoders of `mlx.core.quantize`, bit for bit (checked against mlx 0.32 on CPU for every
/// width, group and element type). mlx's GPU encoders start an affine group's maximum at 0 and may differ from these.
#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "galvani/error.h"
#include "quant/matrix_source.h"

namespace galvani::quant {

/// What a matrix is encoded to.
struct CodeFormat {
  MatrixKind kind = MatrixKind::kAffine;  ///< kAffine, kMxfp4, kMxfp8 or kNvfp4
  int bits = 4, group = 64;
  DType dtype = DType::kBF16;  ///< element type of the weights (f32, f16, bf16), and of affine scales and biases

  bool affine() const { return kind == MatrixKind::kAffine; }
  /// Bytes of the codes of `count` weights, and of one scale (one bias).
  int64_t code_bytes(int64_t count) const { return count * bits / 8; }
  int64_t scale_bytes() const { return affine() ? dtype_bytes(dtype) : 1; }
  bool operator==(const CodeFormat&) const = default;
};

/// Error, naming what is allowed: bits and group outside affine 2, 3, 4, 5, 6, 8 × 32, 64, 128, mxfp4 4 × 32, mxfp8
/// 8 × 32, nvfp4 4 × 16.
Status check_code_format(const CodeFormat& format);

/// Encodes `count` weights, whole groups, which must be finite and exactly representable in format.dtype. codes:
/// code_bytes(count) bytes; scales (and, if affine, biases): count / group elements of scale_bytes().
///
/// Affine, in f32 per group, n = 2^bits - 1: s = max((max - min) / n, 1e-7), taken negative when |max| >= |min|; e =
/// the end of larger magnitude; q0 = round(e / s); if q0 != 0, s = e / q0 and bias = e, else bias = 0; code =
/// clip(round((w - bias) / s), 0, n). Rounding is to even; scale and bias are rounded to dtype last. A group whose
/// max - min leaves f32 gets an infinite scale, as in mlx; callers look at the scales.
///
/// mxfp4, mxfp8: exponent = ceil(log2(max|w| / 6 or 448)), 0 for a group of zeros, nvfp4: scale = E4M3(max|w| / 6);
/// codes are the nearest E2M1 or E4M3 of w / scale. Every intermediate is rounded to dtype, as mlx's element-wise
/// operations do.
void encode_groups(const CodeFormat& format, const float* weights, int64_t count, std::byte* codes, std::byte* scales,
                   std::byte* biases);

/// `count` values rounded to `type` (f32, f16 or bf16) and stored.
void store_floats(DType type, const float* values, int64_t count, std::byte* out);
/// The value of `type` nearest to x.
inline float round_to(DType type, float x) {
  if (type == DType::kBF16) return bf16_to_f32(f32_to_bf16(x));
  if (type == DType::kF16) return f16_to_f32(f32_to_f16(x));
  return x;
}

}  // namespace galvani::quant
