#include "quant/export_stream.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/parallel.h"

namespace galvani::quant {
namespace {

constexpr int64_t kBlockWeights = int64_t{1} << 22;  // of one thread: 16 MB as f32

int64_t elements_of(const Shape& shape) {
  int64_t product = 1;  // dims come from headers whose products were checked
  for (const int64_t dim : shape.dims()) product *= dim;
  return product;
}

Shape with_last(const Shape& shape, int64_t last) {
  std::vector<int64_t> dims = shape.dims();
  dims.back() = last;
  return Shape(std::move(dims));
}

/// Rounds to `type` in place. Error: a value that is no number, or that the type cannot hold.
Status round_weights(DType type, const std::string& name, int64_t first_row, int64_t cols, std::span<float> values) {
  bool good = true;
  for (float& value : values) {
    value = round_to(type, value);
    good &= std::isfinite(value);
  }
  if (good) return {};
  const auto bad = std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  const int64_t at = bad - values.begin();
  return fail(ErrorCode::kCorrupt,
              "{}: the weight in row {}, column {} is {}; weights must be finite numbers that {} can hold", name,
              first_row + at / cols, at % cols,
              std::isnan(*bad) ? "NaN" : fmt::format("infinite or larger than the largest {}", dtype_name(type)),
              dtype_name(type));
}

/// A matrix being converted: rows of one part after the other.
class Converter {
 public:
  Converter(Checkpoint& checkpoint, const ExportMatrix& matrix, const std::function<Status(int64_t)>& done,
            const ByteSink& sink)
      : checkpoint_(checkpoint), matrix_(matrix), done_(done), sink_(sink) {
    cols_ = matrix.shape[matrix.shape.rank() - 1];
  }

  Status run() {
    for (const ExportPart& part : matrix_.parts) {
      if (source_ == nullptr || source_->name() != part.module) {
        GALVANI_TRY(source_, checkpoint_.matrix(part.module, part.rows, part.cols));
      }
      const int64_t rows_at_once = std::max<int64_t>(1, kBlockWeights * threads() / cols_);
      for (int64_t r = part.begin; r < part.end; r += rows_at_once) {
        const int64_t end = std::min(part.end, r + rows_at_once);
        GALVANI_TRY_VOID(block(r, end));
        GALVANI_TRY_VOID(done_((end - r) * cols_));
      }
    }
    if (!scales_.empty()) GALVANI_TRY_VOID(sink_(scales_));
    if (!biases_.empty()) GALVANI_TRY_VOID(sink_(biases_));
    return {};
  }

 private:
  /// Codes that already are what is wanted are taken over as they stand.
  bool verbatim() const {
    const auto& format = matrix_.format;
    return format && format->affine() && source_->kind() == MatrixKind::kAffine && source_->bits() == format->bits &&
           source_->group() == format->group && source_->dtype() == format->dtype;
  }

  Status block(int64_t r0, int64_t r1) {
    if (verbatim()) {
      GALVANI_TRY(const AffineTensor tensor, source_->affine(r0, r1, 0, cols_));
      const AffineView& view = tensor.view;
      const auto scale_bytes = static_cast<size_t>((r1 - r0) * view.groups() * dtype_bytes(view.scale_dtype));
      scales_.insert(scales_.end(), view.scales, view.scales + scale_bytes);
      biases_.insert(biases_.end(), view.biases, view.biases + scale_bytes);
      return sink_({view.codes, static_cast<size_t>((r1 - r0) * view.row_code_bytes())});
    }
    const int64_t count = (r1 - r0) * cols_;
    const auto& format = matrix_.format;
    out_.resize(static_cast<size_t>(format ? format->code_bytes(count) : count * dtype_bytes(matrix_.dtype)));
    const int64_t row_scales = format ? cols_ / format->group * format->scale_bytes() : 0;
    const size_t old = scales_.size();
    scales_.resize(old + static_cast<size_t>((r1 - r0) * row_scales));
    if (format && format->affine()) biases_.resize(scales_.size());
    std::vector<Status> statuses(static_cast<size_t>(threads()));
    parallel_for(r1 - r0, 1, [&](int64_t begin, int64_t end, int thread) {
      statuses[static_cast<size_t>(thread)] = rows(r0, begin, end, old, row_scales);
    });
    for (const Status& status : statuses) GALVANI_TRY_VOID(status);
    return sink_(out_);
  }

  /// Rows r0 + [begin, end) into their places of the block's buffers.
  Status rows(int64_t r0, int64_t begin, int64_t end, size_t old, int64_t row_scales) {
    const int64_t step = std::max<int64_t>(1, (int64_t{1} << 16) / cols_);
    std::vector<float> values(static_cast<size_t>(step * cols_));
    for (int64_t r = begin; r < end; r += step) {
      const int64_t count = std::min(step, end - r);
      GALVANI_TRY_VOID(source_->dequant_rows(r0 + r, r0 + r + count, values.data()));
      const std::span<float> block(values.data(), static_cast<size_t>(count * cols_));
      GALVANI_TRY_VOID(round_weights(matrix_.dtype, source_->name(), r0 + r, cols_, block));
      if (!matrix_.format) {
        store_floats(matrix_.dtype, values.data(), count * cols_, out_.data() + r * cols_ * dtype_bytes(matrix_.dtype));
        continue;
      }
      const CodeFormat& format = *matrix_.format;
      const size_t at = old + static_cast<size_t>(r * row_scales);
      std::byte* biases = format.affine() ? biases_.data() + at : nullptr;
      encode_groups(format, values.data(), count * cols_, out_.data() + format.code_bytes(r * cols_),
                    scales_.data() + at, biases);
      GALVANI_TRY_VOID(check_scales(format, r0 + r, count, scales_.data() + at));
    }
    return {};
  }

  Status check_scales(const CodeFormat& format, int64_t first_row, int64_t count, const std::byte* scales) const {
    if (!format.affine()) return {};
    const int64_t groups = cols_ / format.group, bytes = format.scale_bytes();
    for (int64_t i = 0; i < count * groups; ++i) {
      uint32_t bits = 0;
      std::memcpy(&bits, scales + i * bytes, static_cast<size_t>(bytes));
      const uint32_t exponent = format.dtype == DType::kF32    ? 0x7f800000u
                                : format.dtype == DType::kBF16 ? 0x7f80u
                                                               : 0x7c00u;
      if ((bits & exponent) == exponent)
        return fail(ErrorCode::kUnsupported,
                    "{}: the weights of row {}, group {} span more than {} can hold as a scale", source_->name(),
                    first_row + i / groups, i % groups, dtype_name(format.dtype));
    }
    return {};
  }

  Checkpoint& checkpoint_;
  const ExportMatrix& matrix_;
  const std::function<Status(int64_t)>& done_;
  const ByteSink& sink_;
  int64_t cols_ = 0;
  MatrixPtr source_;
  std::vector<std::byte> out_, scales_, biases_;
};

}  // namespace

std::vector<formats::SafetensorsWriter::Tensor> tensors_of(const ExportMatrix& matrix) {
  if (!matrix.format) return {{matrix.module + ".weight", matrix.dtype, matrix.shape}};
  const CodeFormat& format = *matrix.format;
  const int64_t cols = matrix.shape[matrix.shape.rank() - 1];
  const Shape scales = with_last(matrix.shape, cols / format.group);
  const DType scale_type = format.affine() ? format.dtype : DType::kU8;
  std::vector<formats::SafetensorsWriter::Tensor> tensors = {
      {matrix.module + ".weight", DType::kU32, with_last(matrix.shape, cols * format.bits / 32)},
      {matrix.module + ".scales", scale_type, scales}};
  if (format.affine()) tensors.push_back({matrix.module + ".biases", scale_type, scales});
  return tensors;
}

int64_t bytes_of(const ExportMatrix& matrix) {
  int64_t bytes = 0;
  for (const auto& tensor : tensors_of(matrix)) bytes += elements_of(tensor.shape) * dtype_bytes(tensor.dtype);
  return bytes;
}

int64_t bytes_of(const ExportVector& vector) { return elements_of(vector.shape) * dtype_bytes(vector.dtype); }

Status stream_matrix(Checkpoint& checkpoint, const ExportMatrix& matrix, const std::function<Status(int64_t)>& done,
                     const ByteSink& sink) {
  return Converter(checkpoint, matrix, done, sink).run();
}

Status stream_vector(Checkpoint& checkpoint, const ExportVector& vector, const ByteSink& sink) {
  const int64_t count = elements_of(vector.shape);
  GALVANI_TRY(std::vector<float> values, checkpoint.vector(vector.source, count));
  // mlx-lm adds 1 to what the checkpoint's type holds; taking it out again is exact in f32 only.
  for (float& value : values) value = (vector.add > 0 ? round_to(vector.dtype, value) : value) + vector.add;
  GALVANI_TRY_VOID(round_weights(vector.dtype, vector.source, 0, std::max<int64_t>(1, count), values));
  std::vector<std::byte> bytes(static_cast<size_t>(bytes_of(vector)));
  store_floats(vector.dtype, values.data(), count, bytes.data());
  return sink(bytes);
}

}  // namespace galvani::quant
