#include "quant/transpose.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <mutex>
#include <vector>

#include "core/error.h"
#include "quant/float_bytes.h"

namespace galvani::quant {
namespace {

/// to [cols, rows] of from [rows, cols], elements of `size` bytes.
void turn(const std::byte* from, int64_t rows, int64_t cols, int64_t size, std::byte* to) {
  constexpr int64_t kTile = 32;  // both sides of a tile stay in the cache
  for (int64_t r0 = 0; r0 < rows; r0 += kTile) {
    for (int64_t c0 = 0; c0 < cols; c0 += kTile) {
      for (int64_t r = r0; r < std::min(rows, r0 + kTile); ++r)
        for (int64_t c = c0; c < std::min(cols, c0 + kTile); ++c)
          std::memcpy(to + (c * rows + r) * size, from + (r * cols + c) * size, static_cast<size_t>(size));
    }
  }
}

Status check_range(const MatrixSource& base, int64_t first, int64_t count) {
  if (first < 0 || count < 1 || first > base.rows() - count)
    return fail(ErrorCode::kOutOfRange, "{}: rows {} to {} were asked for; the matrix has {}", base.name(), first,
                first + count - 1, base.rows());
  return {};
}

class Transposed final : public MatrixSource {
 public:
  /// Turned on the first read.
  Transposed(MatrixPtr base, int64_t first, int64_t count) : base_(std::move(base)), first_(first) {
    set(base_->name(), base_->format(), base_->dtype(), base_->cols(), count);
    file_bytes_ = base_->file_bytes() / base_->rows() * count;
  }
  /// Turned already.
  Transposed(const std::string& name, std::vector<std::byte> bytes, DType dtype, int64_t rows, int64_t cols)
      : bytes_(std::move(bytes)) {
    set(name, dtype_name(dtype), dtype, rows, cols);
    file_bytes_ = static_cast<int64_t>(bytes_.size());
  }

  Status dequant_rows(int64_t r0, int64_t r1, float* out) const override {
    GALVANI_TRY_VOID(check_rows(r0, r1));
    GALVANI_TRY_VOID(copy());
    load_floats(dtype_, bytes_.data() + r0 * row_bytes(), (r1 - r0) * cols_, out);
    return {};
  }

  std::span<const std::byte> dense_rows(int64_t r0, int64_t r1) const override {
    if (!check_rows(r0, r1) || !copy()) return {};
    return std::span(bytes_).subspan(static_cast<size_t>(r0 * row_bytes()),
                                     static_cast<size_t>((r1 - r0) * row_bytes()));
  }

 private:
  void set(const std::string& name, const std::string& format, DType dtype, int64_t rows, int64_t cols) {
    name_ = name;
    format_ = format;
    rows_ = rows;
    cols_ = cols;
    dtype_ = dtype;
    bits_ = static_cast<int>(8 * dtype_bytes(dtype));
  }
  int64_t row_bytes() const { return cols_ * dtype_bytes(dtype_); }

  Status copy() const {
    if (base_ != nullptr) std::call_once(once_, [&] { copied_ = transpose(); });
    return copied_;
  }

  Status transpose() const {
    const auto from = base_->dense_rows(first_, first_ + cols_);
    if (from.empty()) return fail(ErrorCode::kUnsupported, "{}: its rows cannot be read as they are stored", name_);
    std::vector<std::byte> to(from.size());
    turn(from.data(), cols_, rows_, dtype_bytes(dtype_), to.data());
    bytes_ = std::move(to);
    return {};
  }

  MatrixPtr base_;  ///< null when turned already
  int64_t first_ = 0;
  mutable std::once_flag once_;
  mutable Status copied_;
  mutable std::vector<std::byte> bytes_;
};

}  // namespace

Result<MatrixPtr> transpose_rows(MatrixPtr base, int64_t first, int64_t count) {
  if (base->kind() != MatrixKind::kDense)
    return fail(ErrorCode::kUnsupported, "{} is {}, stored by columns; only f32, f16 and bf16 can be turned around",
                base->name(), base->format());
  GALVANI_TRY_VOID(check_range(*base, first, count));
  return std::make_shared<Transposed>(std::move(base), first, count);
}

Result<MatrixPtr> transpose_values(const MatrixSource& base, int64_t first, int64_t count) {
  GALVANI_TRY_VOID(check_range(base, first, count));
  const int64_t cols = base.cols();
  std::vector<float> values(static_cast<size_t>(count * cols));
  GALVANI_TRY_VOID(base.dequant_rows(first, first + count, values.data()));
  const bool narrow = std::all_of(values.begin(), values.end(),
                                  [](float value) { return (std::bit_cast<uint32_t>(value) & 0xffff) == 0; });
  std::vector<std::byte> turned(values.size() * (narrow ? sizeof(uint16_t) : sizeof(float)));
  if (narrow) {
    std::vector<uint16_t> halves(values.size());
    std::transform(values.begin(), values.end(), halves.begin(), f32_to_bf16);
    turn(reinterpret_cast<const std::byte*>(halves.data()), count, cols, sizeof(uint16_t), turned.data());
  } else {
    turn(reinterpret_cast<const std::byte*>(values.data()), count, cols, sizeof(float), turned.data());
  }
  return std::make_shared<Transposed>(base.name(), std::move(turned), narrow ? DType::kBF16 : DType::kF32, cols, count);
}

}  // namespace galvani::quant
