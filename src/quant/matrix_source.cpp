#include "quant/matrix_source.h"

#include <cstring>

#include "core/error.h"

namespace galvani::quant {

const char* matrix_kind_name(MatrixKind kind) noexcept {
  switch (kind) {
    case MatrixKind::kDense: return "dense";
    case MatrixKind::kAffine: return "affine";
    case MatrixKind::kMxfp4: return "mxfp4";
    case MatrixKind::kMxfp8: return "mxfp8";
    case MatrixKind::kNvfp4: return "nvfp4";
    case MatrixKind::kLut4: return "lut4";
  }
  return "?";
}

Result<AffineTensor> MatrixSource::affine(int64_t, int64_t, int64_t, int64_t) const {
  return fail(ErrorCode::kUnsupported, "{} is {} ({}), which is not an affine format", name_, format_,
              matrix_kind_name(kind_));
}

Result<AffineView> MatrixSource::affine_in_place(int64_t r0, int64_t r1) const {
  GALVANI_TRY_VOID(check_rows(r0, r1));
  return AffineView{};
}

Status MatrixSource::read_affine(int64_t r0, int64_t r1, std::byte* codes, std::byte* scales, std::byte* biases) const {
  GALVANI_TRY(const AffineTensor tensor, affine(r0, r1, 0, cols_));
  const AffineView& view = tensor.view;
  const auto code_bytes = static_cast<size_t>(view.rows * view.row_code_bytes());
  const auto pair_bytes = static_cast<size_t>(view.rows * view.groups() * dtype_bytes(view.scale_dtype));
  if (code_bytes == 0) return {};
  std::memcpy(codes, view.codes, code_bytes);
  std::memcpy(scales, view.scales, pair_bytes);
  std::memcpy(biases, view.biases, pair_bytes);
  return {};
}

Result<bool> MatrixSource::read_dense(int64_t r0, int64_t r1, std::byte* out) const {
  const std::span<const std::byte> rows = dense_rows(r0, r1);
  if (rows.empty()) return false;
  std::memcpy(out, rows.data(), rows.size());
  return true;
}

Status MatrixSource::check_rows(int64_t r0, int64_t r1) const {
  if (r0 < 0 || r0 > r1 || r1 > rows_)
    return fail(ErrorCode::kOutOfRange, "{}: rows [{}, {}) are not inside [0, {})", name_, r0, r1, rows_);
  return {};
}

Status MatrixSource::check_block(int64_t r0, int64_t r1, int64_t c0, int64_t c1) const {
  GALVANI_TRY_VOID(check_rows(r0, r1));
  const int64_t step = group_ < 32 ? 32 : group_;
  const bool whole = c0 == 0 && c1 == cols_;  // a row of 16-wide groups need not be a multiple of 32
  if (c0 < 0 || c0 > c1 || c1 > cols_ || (!whole && (c0 % step != 0 || c1 % step != 0)))
    return fail(ErrorCode::kOutOfRange, "{}: columns [{}, {}) must be multiples of {} inside [0, {}]", name_, c0, c1,
                step, cols_);
  return {};
}

}  // namespace galvani::quant
