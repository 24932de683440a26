#pragma once
/// A weight matrix as it stands in a checkpoint: which numbers it holds, readable by row and column range, whatever
/// the file format. Kernels pack from it; embedding look-ups read single rows from it.
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor_view.h"
#include "quant/affine.h"
#include "quant/synthetic_words.h"

namespace galvani::quant {

enum class MatrixKind {
  kDense,   ///< f32, f16 or bf16 elements
  kAffine,  ///< affine codes (MLX files; GGUF block types that import exactly)
  kMxfp4,   ///< 4-bit E2M1, one E8M0 scale per 32
  kMxfp8,   ///< 8-bit E4M3, one E8M0 scale per 32
  kNvfp4,   ///< 4-bit E2M1, one E4M3 scale per 16
  kLut4,    ///< GGUF IQ4_NL: a 16-entry table times an f16 scale per 32
};
const char* matrix_kind_name(MatrixKind kind) noexcept;

/// Immutable and safe to read from several threads. Stacked experts [E, R, C] appear as one matrix of E·R rows.
class MatrixSource {
 public:
  virtual ~MatrixSource() = default;

  const std::string& name() const noexcept { return name_; }
  int64_t rows() const noexcept { return rows_; }
  int64_t cols() const noexcept { return cols_; }
  MatrixKind kind() const noexcept { return kind_; }
  /// Code bits (affine, fp) or element bits (dense).
  int bits() const noexcept { return bits_; }
  /// Columns that share a scale; 0 for dense.
  int group() const noexcept { return group_; }
  /// Element type of a dense matrix, scale type of an affine one.
  DType dtype() const noexcept { return dtype_; }
  /// Bytes this matrix takes in its file, scales included.
  int64_t file_bytes() const noexcept { return file_bytes_; }
  /// The file's own word for the format, e.g. "Q4_K", "affine 4-bit g64", "bf16".
  const std::string& format() const noexcept { return format_; }

  /// Rows [r0, r1) as f32, exactly the values the file means; out is [r1-r0, cols]. Ranges must lie inside (checked).
  virtual Status dequant_rows(int64_t r0, int64_t r1, float* out) const = 0;
  /// Rows [r0, r1), columns [c0, c1) of a kAffine matrix as affine codes; c0, c1 multiples of the group (and of 32).
  /// dequantising the result gives dequant_rows' values bit for bit. Error kUnsupported for other kinds.
  virtual Result<AffineTensor> affine(int64_t r0, int64_t r1, int64_t c0, int64_t c1) const;
  /// The same for whole rows [r0, r1), where they stand so in the file and no copy is needed; codes null when they do
  /// not. Lives as long as this object. Errors as affine()'s.
  virtual Result<AffineView> affine_in_place(int64_t r0, int64_t r1) const;
  /// affine() of whole rows [r0, r1) into the caller's memory, one after another: codes [r1-r0, cols·bits/8 bytes],
  /// scales and biases [r1-r0, cols/group] of dtype(). Read from the file where they stand so in it: for bulk reads by
  /// several threads. Errors as affine()'s and FileMap::read's.
  virtual Status read_affine(int64_t r0, int64_t r1, std::byte* codes, std::byte* scales, std::byte* biases) const;
  /// Raw elements of a kDense matrix's rows [r0, r1) into the caller's memory, likewise. False where they are not
  /// stored so, but converted or in another order within the file; `out` then holds nothing. Errors: FileMap::read's.
  virtual Result<bool> read_dense(int64_t r0, int64_t r1, std::byte* out) const;
  /// What a synthetic matrix is made from, so that a device can make it; null for every other.
  virtual const SyntheticWords* synthetic() const { return nullptr; }
  /// Raw elements of a kDense matrix's rows [r0, r1), contiguous in the file, or empty when they are not.
  virtual std::span<const std::byte> dense_rows(int64_t r0, int64_t r1) const {
    (void)r0, (void)r1;
    return {};
  }

 protected:
  Status check_rows(int64_t r0, int64_t r1) const;
  Status check_block(int64_t r0, int64_t r1, int64_t c0, int64_t c1) const;

  std::string name_, format_;
  int64_t rows_ = 0, cols_ = 0, file_bytes_ = 0;
  MatrixKind kind_ = MatrixKind::kDense;
  int bits_ = 0, group_ = 0;
  DType dtype_ = DType::kF32;
};

using MatrixPtr = std::shared_ptr<const MatrixSource>;

}  // namespace galvani::quant
