#pragma once
/// The kinds of MatrixSource that checkpoints hand out.
#include <memory>
#include <string>

#include "core/file_map.h"
#include "formats/gguf.h"
#include "quant/matrix_source.h"

namespace galvani::quant {

/// Bytes of a mapped file, kept alive with it. `map` is null for bytes that the caller owns.
struct MappedBytes {
  std::span<const std::byte> bytes;
  std::shared_ptr<const FileMap> map;
  Status check() const { return map == nullptr ? Status{} : map->check_not_truncated(); }
  /// Copies out.size() bytes from `offset` on; they must lie inside.
  Status read(size_t offset, std::span<std::byte> out) const;
};

/// Where row r of a matrix stands in its file. GGUF's llama files interleave the two rotary halves of each head
/// (models.md 7.5): row s·hd/2+i of a head is file row 2i+s. head_dim 0 = rows in order.
struct RowMap {
  int64_t head_dim = 0;
  bool in_order() const { return head_dim == 0; }
  int64_t file_row(int64_t r) const {
    if (head_dim == 0) return r;
    const int64_t in_head = r % head_dim, half = head_dim / 2;
    return r - in_head + (in_head < half ? 2 * in_head : 2 * (in_head - half) + 1);
  }
};

/// f32, f16 or bf16 elements; bytes must hold rows·cols of them.
Result<MatrixPtr> make_dense_source(std::string name, MappedBytes bytes, DType dtype, int64_t rows, int64_t cols,
                                    RowMap map = {});

/// MLX affine triple.
Result<MatrixPtr> make_affine_source(std::string name, MappedBytes codes, MappedBytes scales, MappedBytes biases,
                                     int64_t rows, int64_t cols, int bits, int group, DType scale_dtype);

/// MLX float formats: kMxfp4 (E2M1, E8M0 per 32), kMxfp8 (E4M3, E8M0 per 32), kNvfp4 (E2M1, E4M3 per 16).
Result<MatrixPtr> make_fp_source(std::string name, MatrixKind kind, MappedBytes codes, MappedBytes scales, int64_t rows,
                                 int64_t cols);

/// Rows and columns of a block of fp8 codes that share a scale.
constexpr int64_t kFp8Block = 128;
/// E4M3 codes [rows, cols] and f32 scales, one a block of 128 × 128 (the last ones may be cut off).
Result<MatrixPtr> make_fp8_block_source(std::string name, MappedBytes codes, MappedBytes scales, int64_t rows,
                                        int64_t cols);

/// GGUF tensor of any readable type; bytes must hold rows·cols elements in rows of whole blocks.
Result<MatrixPtr> make_gguf_source(std::string name, formats::GgmlType type, MappedBytes bytes, int64_t rows,
                                   int64_t cols, RowMap map = {});

}  // namespace galvani::quant
