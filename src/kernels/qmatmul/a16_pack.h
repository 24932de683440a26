#pragma once
/// From a checkpoint's affine matrix to A16 bytes (a16_layout.h) and back. CPU only.
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/error.h"
#include "kernels/qmatmul/a16_layout.h"
#include "quant/matrix_source.h"

namespace galvani::kernels {

/// The A16 form of `source`: its own bits, group and scale type. kUnsupported for other kinds than kAffine, and for a
/// group that does not divide the columns.
Result<A16Format> a16_format_of(const quant::MatrixSource& source);

/// Packs rows [r0, r1) of `source`, all columns, to exactly a16_bytes(format, r1 - r0, cols) bytes. r0 may be any row.
/// Uses the thread pool. Nothing is rounded: codes, scales and biases keep their bits.
Status a16_pack(const quant::MatrixSource& source, int64_t r0, int64_t r1, std::span<std::byte> out);

/// Packs an affine view; `out` as above. `tile0`, `tile1`: which row tiles of it to write (one thread).
void a16_pack_tiles(const quant::AffineView& view, const A16Format& format, int64_t tile0, int64_t tile1,
                    std::byte* out);

struct A16Weight {
  uint32_t code = 0;
  uint32_t scale_bits = 0, bias_bits = 0;  ///< in the low bits, of the format's scale type
};
/// One weight of packed bytes, exactly as it was packed; scalar, for tests and the reference.
A16Weight a16_unpack(const A16Format& format, int64_t cols, std::span<const std::byte> packed, int64_t row,
                     int64_t col);

/// Rows [r0, r1) back as f32: scale · code, rounded, + bias, rounded, as quant::affine_dequant_rows does.
void a16_dequant_rows(const A16Format& format, int64_t cols, std::span<const std::byte> packed, int64_t r0, int64_t r1,
                      float* out);

}  // namespace galvani::kernels
