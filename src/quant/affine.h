#pragma once
/// Affine-quantised matrices: w[r, c] = scale[r, c/group] · code[r, c] + bias[r, c/group], codes unsigned integers.
///
/// Layout is MLX's (its documentation of affine_quantize): each row is a little-endian bit stream of `bits`-wide codes,
/// code i of the row at bits [i·bits, (i+1)·bits), stored as 32-bit words; a row takes cols·bits/32 words.
/// Scales and biases are row-major [rows, cols/group] in `scale_dtype`.
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/dtype.h"
#include "galvani/error.h"

namespace galvani::quant {

/// A view of an affine matrix; pointers need only byte alignment (files promise none).
struct AffineView {
  int64_t rows = 0, cols = 0;
  int bits = 0;                      ///< 2, 3, 4, 5, 6 or 8
  int group = 0;                     ///< 16, 32, 64 or 128; divides cols
  DType scale_dtype = DType::kBF16;  ///< f32, f16 or bf16; also the biases' type
  const std::byte* codes = nullptr;  ///< rows × cols·bits/8 bytes
  const std::byte* scales = nullptr;
  const std::byte* biases = nullptr;

  int64_t row_code_bytes() const { return cols * bits / 8; }
  int64_t groups() const { return cols / group; }
};

/// An affine matrix that owns its bytes. Move it, do not copy it: a copy's view would point into the original.
struct AffineTensor {
  AffineView view;  ///< points into `storage`
  std::vector<std::byte> storage;
};

/// Zeroed codes, scales and biases of these dims, each 64-byte spaced; write through `storage` (the view's pointers say
/// where).
AffineTensor make_affine_tensor(int64_t rows, int64_t cols, int bits, int group, DType scale_dtype);

/// Code `c` of a row whose packed bytes start at `row`.
uint32_t affine_code(const std::byte* row, int bits, int64_t c) noexcept;

/// Dequantises rows [r0, r1) to f32: one multiply and one add each rounded to f32 — or, since both forms give the same
/// bits for GGUF imports (models.md 7.7), one FMA; this oracle uses multiply, then add. out is [r1-r0, cols].
void affine_dequant_rows(const AffineView& view, int64_t r0, int64_t r1, float* out);

/// Checks dims, bits, group and that the given byte counts match; the error names what was expected.
Status affine_check(const AffineView& view, size_t code_bytes, size_t scale_bytes, size_t bias_bytes);

}  // namespace galvani::quant
