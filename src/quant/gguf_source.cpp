/// Matrices in ggml block formats.
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "quant/bit_pack.h"
#include "quant/gguf_blocks.h"
#include "quant/sources.h"

namespace galvani::quant {
namespace {

using formats::GgmlType;

/// Stores scales of type f32 or f16; false when one is not finite or does not fit (its block is damaged).
bool store_scales(DType type, const float* from, int64_t count, std::byte* to) {
  float largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, from[i] == from[i] ? std::abs(from[i]) : INFINITY);
  if (type == DType::kF32) {
    std::memcpy(to, from, static_cast<size_t>(count) * 4);
    return largest <= 3.4e38f;
  }
  for (int64_t i = 0; i < count; ++i) {
    const uint16_t half = f32_to_f16(from[i]);
    std::memcpy(to + 2 * i, &half, 2);
  }
  return largest <= 65504.0f;
}

class GgufSource final : public MatrixSource {
 public:
  GgufSource(std::string name, GgmlType type, MappedBytes bytes, int64_t rows, int64_t cols, RowMap map)
      : data_(std::move(bytes)), map_(map), type_(type), info_(formats::ggml_type_info(type)) {
    name_ = std::move(name);
    format_ = info_.name;
    rows_ = rows;
    cols_ = cols;
    file_bytes_ = static_cast<int64_t>(data_.bytes.size());
    row_bytes_ = cols / info_.block * info_.bytes;
    if (const auto import = affine_import(type)) {
      kind_ = MatrixKind::kAffine;
      bits_ = import->bits;
      group_ = import->group;
      dtype_ = import->scale_dtype;
    } else {
      kind_ = type == GgmlType::kMXFP4 ? MatrixKind::kMxfp4 : MatrixKind::kLut4;
      bits_ = 4;
      group_ = 32;
      dtype_ = type == GgmlType::kMXFP4 ? DType::kU8 : DType::kF16;
    }
  }

  Status dequant_rows(int64_t r0, int64_t r1, float* out) const override {
    GALVANI_TRY_VOID(check_rows(r0, r1));
    GALVANI_TRY_VOID(data_.check());
    for (int64_t r = r0; r < r1; ++r) decode_blocks(type_, row(r), cols_ / info_.block, out + (r - r0) * cols_);
    return {};
  }

  Result<AffineTensor> affine(int64_t r0, int64_t r1, int64_t c0, int64_t c1) const override {
    if (kind_ != MatrixKind::kAffine) return MatrixSource::affine(r0, r1, c0, c1);
    GALVANI_TRY_VOID(check_block(r0, r1, c0, c1));
    GALVANI_TRY_VOID(data_.check());
    AffineTensor out = make_affine_tensor(r1 - r0, c1 - c0, bits_, group_, dtype_);
    if (out.storage.empty()) return out;
    const int64_t first = c0 / info_.block, blocks = (c1 + info_.block - 1) / info_.block - first;
    const int64_t skip = c0 - first * info_.block, groups = (c1 - c0) / group_,
                  scale_bytes = groups * dtype_bytes(dtype_);
    std::vector<uint8_t> codes(static_cast<size_t>(blocks * info_.block));
    std::vector<float> scales(codes.size() / static_cast<size_t>(group_)), biases(scales.size());
    std::byte* base = out.storage.data();
    std::byte* to_scales = base + (out.view.scales - base);
    std::byte* to_biases = base + (out.view.biases - base);
    bool good = true;
    for (int64_t r = r0; r < r1; ++r) {
      unpack_blocks(type_, row(r) + first * info_.bytes, blocks, codes.data(), scales.data(), biases.data());
      pack_codes(bits_, codes.data() + skip, c1 - c0, base + (r - r0) * out.view.row_code_bytes());
      good &= store_scales(dtype_, scales.data() + skip / group_, groups, to_scales + (r - r0) * scale_bytes);
      good &= store_scales(dtype_, biases.data() + skip / group_, groups, to_biases + (r - r0) * scale_bytes);
    }
    if (!good)
      return fail(ErrorCode::kCorrupt,
                  "{}: a {} block has a scale that is not finite or too large for {}; the file is damaged", name_,
                  format_, dtype_name(dtype_));
    return out;
  }

 private:
  const std::byte* row(int64_t r) const { return data_.bytes.data() + map_.file_row(r) * row_bytes_; }

  MappedBytes data_;
  RowMap map_;
  GgmlType type_;
  const formats::GgmlTypeInfo& info_;
  int64_t row_bytes_ = 0;
};

}  // namespace

Result<MatrixPtr> make_gguf_source(std::string name, GgmlType type, MappedBytes bytes, int64_t rows, int64_t cols,
                                   RowMap map) {
  switch (type) {
    case GgmlType::kF32: return make_dense_source(std::move(name), std::move(bytes), DType::kF32, rows, cols, map);
    case GgmlType::kF16: return make_dense_source(std::move(name), std::move(bytes), DType::kF16, rows, cols, map);
    case GgmlType::kBF16: return make_dense_source(std::move(name), std::move(bytes), DType::kBF16, rows, cols, map);
    default: break;
  }
  const auto& info = formats::ggml_type_info(type);
  int64_t total = 0;
  if (rows < 0 || cols < 0 || cols % info.block != 0 ||
      __builtin_mul_overflow(cols / info.block * info.bytes, rows, &total) ||
      total != static_cast<int64_t>(bytes.bytes.size()))
    return fail(ErrorCode::kCorrupt, "{}: [{}, {}] in {} blocks of {} does not take {} bytes", name, rows, cols,
                info.name, info.block, bytes.bytes.size());
  if (map.head_dim != 0 && (map.head_dim < 0 || map.head_dim % 2 != 0 || rows % map.head_dim != 0))
    return fail(ErrorCode::kCorrupt, "{}: {} rows are not whole heads of an even dimension {}", name, rows,
                map.head_dim);
  return std::make_shared<GgufSource>(std::move(name), type, std::move(bytes), rows, cols, map);
}

}  // namespace galvani::quant
