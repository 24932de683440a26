#pragma once
/// From a checkpoint's matrix of float codes (mxfp4, nvfp4, mxfp8) to A16 bytes and back. CPU only.
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/error.h"
#include "kernels/qmatmul/a16_float.h"
#include "quant/matrix_source.h"

namespace galvani::kernels {

/// What the packed bytes leave out.
struct A16FloatForm {
  /// A weight is factor · scale · code. A power of two that brings E8M0 scales near 1, 2^8 for nvfp4 (times a
  /// per-tensor factor, where a checkpoint has one).
  float factor = 1;
  /// Whether every scale · code is exact in a 16-bit float, so that arms may form weights before they multiply.
  bool exact_f16 = true, exact_bf16 = true;
  bool operator==(const A16FloatForm&) const = default;
};

/// The form of a kMxfp4, kNvfp4 or kMxfp8 matrix; kUnsupported for other kinds, and when its group (32, 16, 32) does
/// not divide the columns.
Result<A16Format> a16_float_format_of(const quant::MatrixSource& source);

/// Packs rows [r0, r1), all columns, to exactly a16_bytes(format, r1 - r0, cols) bytes. Uses the thread pool. Codes and
/// scales are found again from the values that the matrix stands for (whatever file format they come from; a file's own
/// scale may come back smaller with larger codes), and every value is compared: nothing is rounded. Errors: kCorrupt
/// for a NaN or infinity, kUnsupported when values are not of the kind's form or their scales do not fit into one byte.
Result<A16FloatForm> a16_float_pack(const quant::MatrixSource& source, int64_t r0, int64_t r1,
                                    std::span<std::byte> out);

struct A16FloatWeight {
  uint32_t code = 0, scale = 0;
};
/// One weight of packed bytes as it was packed; scalar, for tests.
A16FloatWeight a16_float_unpack(const A16Format& format, int64_t cols, std::span<const std::byte> packed, int64_t row,
                                int64_t col);
/// Its value, exactly, without the factor.
double a16_float_value(const A16Format& format, const A16FloatWeight& weight);

}  // namespace galvani::kernels
