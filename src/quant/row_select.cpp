#include "quant/row_select.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace galvani::quant {
namespace {

class SelectedRows final : public MatrixSource {
 public:
  SelectedRows(MatrixPtr base, std::vector<RowRun> runs, int64_t rows) : base_(std::move(base)) {
    name_ = base_->name();
    format_ = base_->format();
    rows_ = rows;
    cols_ = base_->cols();
    kind_ = base_->kind();
    bits_ = base_->bits();
    group_ = base_->group();
    dtype_ = base_->dtype();
    file_bytes_ = base_->rows() == 0 ? 0 : base_->file_bytes() / base_->rows() * rows;
    int64_t begin = 0;
    for (const RowRun& run : runs) {
      pieces_.push_back({begin, run});
      begin += run.count;
    }
  }

  Status dequant_rows(int64_t r0, int64_t r1, float* out) const override {
    GALVANI_TRY_VOID(check_rows(r0, r1));
    return each(r0, r1,
                [&](int64_t from, int64_t to, int64_t at) { return base_->dequant_rows(from, to, out + at * cols_); });
  }

  Result<AffineTensor> affine(int64_t r0, int64_t r1, int64_t c0, int64_t c1) const override {
    GALVANI_TRY_VOID(check_block(r0, r1, c0, c1));
    const int64_t whole = one_range(r0, r1);
    if (whole >= 0) return base_->affine(whole, whole + r1 - r0, c0, c1);
    AffineTensor out = make_affine_tensor(r1 - r0, c1 - c0, bits_, group_, dtype_);
    const int64_t code_bytes = out.view.row_code_bytes(), scale_bytes = out.view.groups() * dtype_bytes(dtype_);
    GALVANI_TRY_VOID(each(r0, r1, [&](int64_t from, int64_t to, int64_t at) -> Status {
      GALVANI_TRY(const AffineTensor piece, base_->affine(from, to, c0, c1));
      const auto copy = [&](const std::byte* source, const std::byte* target, int64_t width) {
        if (width == 0) return;
        std::memcpy(out.storage.data() + (target - out.storage.data()) + at * width, source,
                    static_cast<size_t>((to - from) * width));
      };
      copy(piece.view.codes, out.view.codes, code_bytes);
      copy(piece.view.scales, out.view.scales, scale_bytes);
      copy(piece.view.biases, out.view.biases, scale_bytes);
      return {};
    }));
    return out;
  }

  Result<AffineView> affine_in_place(int64_t r0, int64_t r1) const override {
    GALVANI_TRY_VOID(check_rows(r0, r1));
    const int64_t whole = one_range(r0, r1);
    return whole < 0 ? Result<AffineView>(AffineView{}) : base_->affine_in_place(whole, whole + r1 - r0);
  }

  Status read_affine(int64_t r0, int64_t r1, std::byte* codes, std::byte* scales, std::byte* biases) const override {
    GALVANI_TRY_VOID(check_rows(r0, r1));
    const int64_t code_bytes = cols_ * bits_ / 8, pair_bytes = group_ == 0 ? 0 : cols_ / group_ * dtype_bytes(dtype_);
    return each(r0, r1, [&](int64_t from, int64_t to, int64_t at) {
      return base_->read_affine(from, to, codes + at * code_bytes, scales + at * pair_bytes, biases + at * pair_bytes);
    });
  }

  Result<bool> read_dense(int64_t r0, int64_t r1, std::byte* out) const override {
    GALVANI_TRY_VOID(check_rows(r0, r1));
    const int64_t row_bytes = cols_ * dtype_bytes(dtype_);
    bool read = true;
    GALVANI_TRY_VOID(each(r0, r1, [&](int64_t from, int64_t to, int64_t at) -> Status {
      if (!read) return {};
      GALVANI_TRY(read, base_->read_dense(from, to, out + at * row_bytes));
      return {};
    }));
    return read;
  }

  std::span<const std::byte> dense_rows(int64_t r0, int64_t r1) const override {
    if (!check_rows(r0, r1)) return {};
    const int64_t whole = one_range(r0, r1);
    return whole < 0 ? std::span<const std::byte>{} : base_->dense_rows(whole, whole + r1 - r0);
  }

 private:
  struct Piece {
    int64_t begin = 0;  // first row of this matrix
    RowRun run;
  };

  // The piece that holds row r.
  const Piece& piece_of(int64_t r) const {
    auto it =
        std::upper_bound(pieces_.begin(), pieces_.end(), r, [](int64_t row, const Piece& p) { return row < p.begin; });
    return *std::prev(it);
  }

  // First row of the base when rows [r0, r1) lie there one after another, else -1.
  int64_t one_range(int64_t r0, int64_t r1) const {
    if (r0 >= r1) return -1;
    const Piece& piece = piece_of(r0);
    if (piece.run.step != 1 && r1 - r0 > 1) return -1;
    return r1 <= piece.begin + piece.run.count ? piece.run.first + (r0 - piece.begin) * piece.run.step : -1;
  }

  // Calls f(first, last + 1, at) for stretches of the base's rows that make up [r0, r1), `at` counted from r0.
  template <class F>
  Status each(int64_t r0, int64_t r1, F&& f) const {
    for (int64_t r = r0; r < r1;) {
      const Piece& piece = piece_of(r);
      const int64_t from = piece.run.first + (r - piece.begin) * piece.run.step;
      const int64_t count = piece.run.step == 1 ? std::min(r1, piece.begin + piece.run.count) - r : 1;
      GALVANI_TRY_VOID(f(from, from + count, r - r0));
      r += count;
    }
    return {};
  }

  MatrixPtr base_;
  std::vector<Piece> pieces_;
};

}  // namespace

Result<MatrixPtr> select_rows(MatrixPtr base, std::vector<RowRun> runs) {
  std::erase_if(runs, [](const RowRun& run) { return run.count == 0; });
  int64_t rows = 0;
  for (const RowRun& run : runs) {
    const int64_t last = run.first + (run.count - 1) * run.step;
    if (run.count < 0 || std::min(run.first, last) < 0 || std::max(run.first, last) >= base->rows())
      return fail(ErrorCode::kOutOfRange, "{}: rows {} to {} were asked for; the matrix has {}", base->name(),
                  run.first, last, base->rows());
    rows += run.count;
  }
  if (rows == 0) return fail(ErrorCode::kInvalidArgument, "{}: no rows were chosen", base->name());
  return std::make_shared<SelectedRows>(std::move(base), std::move(runs), rows);
}

}  // namespace galvani::quant
