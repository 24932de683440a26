#pragma once
/// Decoders of ggml's block formats (models.md 7.6), by way of affine codes wherever the format is affine (7.7).
#include <cstdint>
#include <optional>

#include "core/dtype.h"
#include "formats/gguf.h"

namespace galvani::quant {

/// The affine shape that a block type imports into exactly.
struct AffineImport {
  int bits, group;
  DType scale_dtype;  ///< f16 where −2^(bits−1)·d is exact in it, f32 for the K types
};
/// Nothing for types that are not affine: floats, IQ4_NL, MXFP4.
std::optional<AffineImport> affine_import(formats::GgmlType type) noexcept;

/// `count` blocks of an affine type as one code a byte, and a scale and bias a group: w = code·scale + bias.
void unpack_blocks(formats::GgmlType type, const std::byte* blocks, int64_t count, uint8_t* codes, float* scales,
                   float* biases);

/// `count` blocks of any type as f32. For affine types w = code·scale + bias with one rounding each, which gives ggml's
/// own values, but for the sign of zeros.
void decode_blocks(formats::GgmlType type, const std::byte* blocks, int64_t count, float* out);

}  // namespace galvani::quant
