#include "exec/recording_ops.h"

#include <algorithm>

#include "core/error.h"

namespace galvani::exec {

Result<LinearRef> RecordingOps::load_linear(const std::string& name, std::span<const LinearPart> parts) {
  int64_t rows = 0;
  for (const LinearPart& part : parts) {
    rows += part.matrix->rows();
    vector_bytes_ += static_cast<int64_t>(part.bias.size() * sizeof(float));
    const auto known =
        std::find_if(matrices_.begin(), matrices_.end(), [&](const Matrix& m) { return m.source == part.matrix; });
    if (known != matrices_.end())
      known->multiplied = true;  // a tied table
    else
      matrices_.push_back({.product = name, .source = part.matrix, .multiplied = true});
  }
  return LinearRef{0, rows, parts.front().matrix->cols()};
}

Result<StackRef> RecordingOps::load_stack(const std::string& name, std::span<const std::vector<LinearPart>> items,
                                          int active) {
  const int count = static_cast<int>(items.size());
  int64_t rows = 0;
  for (size_t i = 0; i < items.size(); ++i) {
    rows = 0;
    for (const LinearPart& part : items[i]) {
      rows += part.matrix->rows();
      vector_bytes_ += static_cast<int64_t>(part.bias.size() * sizeof(float));
      matrices_.push_back({.product = name,
                           .source = part.matrix,
                           .multiplied = true,
                           .active = static_cast<double>(active) / static_cast<double>(count)});
    }
  }
  return StackRef{0, count, rows, items.front().front().matrix->cols()};
}

Result<EmbeddingRef> RecordingOps::load_embedding(const quant::MatrixPtr& table) {
  matrices_.push_back({.product = "embedding", .source = table, .embedding = true});
  return EmbeddingRef{0, table->rows(), table->cols()};
}

Result<VectorRef> RecordingOps::load_vector(std::span<const float> values) {
  vector_bytes_ += static_cast<int64_t>(values.size_bytes());
  return VectorRef{0, static_cast<int64_t>(values.size())};
}

int64_t RecordingOps::weight_bytes() const {
  int64_t bytes = vector_bytes_;
  for (const Matrix& matrix : matrices_) bytes += matrix.source->file_bytes();
  return bytes;
}

int64_t RecordingOps::step_bytes() const {
  int64_t bytes = vector_bytes_;
  for (const Matrix& matrix : matrices_)
    bytes += matrix.multiplied ? static_cast<int64_t>(static_cast<double>(matrix.source->file_bytes()) * matrix.active)
                               : matrix.source->file_bytes() / matrix.source->rows();
  return bytes;
}

Result<std::vector<kernels::SampledToken>> RecordingOps::sample(const Act&, std::span<const kernels::RowSampling>) {
  return fail(ErrorCode::kUnsupported, "this model was opened for inspection; it computes nothing");
}

Status RecordingOps::read(const Act&, float*) {
  return fail(ErrorCode::kUnsupported, "this model was opened for inspection; it computes nothing");
}

}  // namespace galvani::exec
