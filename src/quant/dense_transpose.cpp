#include "quant/dense_transpose.h"

#include <algorithm>
#include <bit>

#include "core/error.h"
#include "quant/float_bytes.h"

namespace galvani::quant {
namespace {

class OwnedDense final : public MatrixSource {
 public:
  OwnedDense(std::string name, std::vector<std::byte> bytes, DType dtype, int64_t rows, int64_t cols)
      : bytes_(std::move(bytes)) {
    name_ = std::move(name);
    format_ = dtype_name(dtype);
    rows_ = rows;
    cols_ = cols;
    dtype_ = dtype;
    bits_ = static_cast<int>(8 * dtype_bytes(dtype));
    file_bytes_ = static_cast<int64_t>(bytes_.size());
  }

  Status dequant_rows(int64_t r0, int64_t r1, float* out) const override {
    GALVANI_TRY_VOID(check_rows(r0, r1));
    load_floats(dtype_, bytes_.data() + r0 * row_bytes(), (r1 - r0) * cols_, out);
    return {};
  }

  std::span<const std::byte> dense_rows(int64_t r0, int64_t r1) const override {
    if (!check_rows(r0, r1)) return {};
    return std::span(bytes_).subspan(static_cast<size_t>(r0 * row_bytes()),
                                     static_cast<size_t>((r1 - r0) * row_bytes()));
  }

 private:
  int64_t row_bytes() const { return cols_ * dtype_bytes(dtype_); }
  std::vector<std::byte> bytes_;
};

/// Is every value a bf16 number, bit for bit?
bool all_bf16(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return (std::bit_cast<uint32_t>(value) & 0xffff) == 0; });
}

}  // namespace

Result<MatrixPtr> dense_transpose(const MatrixSource& base, int64_t first, int64_t count) {
  if (first < 0 || count < 1 || first > base.rows() - count)
    return fail(ErrorCode::kOutOfRange, "{}: rows {} to {} were asked for; the matrix has {}", base.name(), first,
                first + count - 1, base.rows());
  const int64_t cols = base.cols();
  std::vector<float> values(static_cast<size_t>(count * cols));
  GALVANI_TRY_VOID(base.dequant_rows(first, first + count, values.data()));
  const bool narrow = all_bf16(values);
  const int64_t size = narrow ? 2 : 4;
  std::vector<std::byte> bytes(static_cast<size_t>(count * cols * size));
  for (int64_t r = 0; r < cols; ++r) {
    for (int64_t c = 0; c < count; ++c) {
      const float value = values[static_cast<size_t>(c * cols + r)];
      const uint16_t high = f32_to_bf16(value);
      std::memcpy(bytes.data() + (r * count + c) * size,
                  narrow ? static_cast<const void*>(&high) : static_cast<const void*>(&value),
                  static_cast<size_t>(size));
    }
  }
  return std::make_shared<OwnedDense>(base.name(), std::move(bytes), narrow ? DType::kBF16 : DType::kF32, cols, count);
}

}  // namespace galvani::quant
