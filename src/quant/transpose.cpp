#include "quant/transpose.h"

#include <mutex>
#include <vector>

#include "core/error.h"
#include "quant/float_bytes.h"

namespace galvani::quant {
namespace {

class Transposed final : public MatrixSource {
 public:
  Transposed(MatrixPtr base, int64_t first, int64_t count) : base_(std::move(base)), first_(first) {
    name_ = base_->name();
    format_ = base_->format();
    rows_ = base_->cols();
    cols_ = count;
    kind_ = MatrixKind::kDense;
    bits_ = base_->bits();
    dtype_ = base_->dtype();
    file_bytes_ = base_->file_bytes() / base_->rows() * count;
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
  int64_t row_bytes() const { return cols_ * dtype_bytes(dtype_); }

  Status copy() const {
    std::call_once(once_, [&] { copied_ = transpose(); });
    return copied_;
  }

  Status transpose() const {
    const auto from = base_->dense_rows(first_, first_ + cols_);
    if (from.empty()) return fail(ErrorCode::kUnsupported, "{}: its rows cannot be read as they are stored", name_);
    const int64_t size = dtype_bytes(dtype_);
    std::vector<std::byte> to(from.size());
    constexpr int64_t kTile = 32;  // both sides of a tile stay in the cache
    for (int64_t c0 = 0; c0 < cols_; c0 += kTile) {
      for (int64_t r0 = 0; r0 < rows_; r0 += kTile) {
        for (int64_t c = c0; c < std::min(cols_, c0 + kTile); ++c)
          for (int64_t r = r0; r < std::min(rows_, r0 + kTile); ++r)
            std::memcpy(to.data() + (r * cols_ + c) * size, from.data() + (c * rows_ + r) * size,
                        static_cast<size_t>(size));
      }
    }
    bytes_ = std::move(to);
    return {};
  }

  MatrixPtr base_;
  int64_t first_;
  mutable std::once_flag once_;
  mutable Status copied_;
  mutable std::vector<std::byte> bytes_;
};

}  // namespace

Result<MatrixPtr> transpose_rows(MatrixPtr base, int64_t first, int64_t count) {
  if (base->kind() != MatrixKind::kDense)
    return fail(ErrorCode::kUnsupported, "{} is {}, stored by columns; only f32, f16 and bf16 can be turned around",
                base->name(), base->format());
  if (first < 0 || count < 1 || first > base->rows() - count)
    return fail(ErrorCode::kOutOfRange, "{}: rows {} to {} were asked for; the matrix has {}", base->name(), first,
                first + count - 1, base->rows());
  return std::make_shared<Transposed>(std::move(base), first, count);
}

}  // namespace galvani::quant
