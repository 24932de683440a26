#include "exec/recording_ops.h"

#include <algorithm>

#include "core/error.h"

namespace galvani::exec {

Result<LinearRef> RecordingOps::load_linear(const std::string& name, std::span<const LinearPart> parts) {
  int64_t rows = 0;
  Product& product = products_.emplace_back();
  product.name = name;
  for (const LinearPart& part : parts) {
    product.parts.push_back(part.matrix);
    product.biased = product.biased || !part.bias.empty();
    rows += part.matrix->rows();
    vector_bytes_ += static_cast<int64_t>(part.bias.size() * sizeof(float));
    const auto known =
        std::find_if(matrices_.begin(), matrices_.end(), [&](const Matrix& m) { return m.source == part.matrix; });
    if (known != matrices_.end())
      known->multiplied = true;  // a tied table
    else
      matrices_.push_back({.product = name, .source = part.matrix, .multiplied = true});
  }
  return LinearRef{static_cast<int>(products_.size()) - 1, rows, parts.front().matrix->cols()};
}

Result<StackRef> RecordingOps::load_stack(const std::string& name, std::span<const std::vector<LinearPart>> items,
                                          int active) {
  const int count = static_cast<int>(items.size());
  int64_t rows = 0;
  Product& product = products_.emplace_back();
  product.name = name;
  for (const LinearPart& part : items.front()) product.parts.push_back(part.matrix);
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
  return StackRef{static_cast<int>(products_.size()) - 1, count, rows, items.front().front().matrix->cols()};
}

Result<EmbeddingRef> RecordingOps::load_embedding(const quant::MatrixPtr& table) {
  matrices_.push_back({.product = "embedding", .source = table, .embedding = true});
  return EmbeddingRef{0, table->rows(), table->cols()};
}

Result<VectorRef> RecordingOps::load_vector(std::span<const float> values) {
  vector_bytes_ += static_cast<int64_t>(values.size_bytes());
  return VectorRef{0, static_cast<int64_t>(values.size())};
}

Batch RecordingOps::begin_recording(int64_t rows, int64_t first_position) {
  Batch batch;
  const std::vector<int32_t> tokens(static_cast<size_t>(rows), 0);
  batch.add(0, static_cast<int32_t>(first_position), tokens, WantLogits::kLast);
  rows_ = rows;
  logit_rows_ = static_cast<int64_t>(batch.logit_rows.size());
  layer_ = -1;
  calls_.clear();
  obstacle_ = {};
  return batch;
}

Act RecordingOps::product(int64_t rows, LinearRef w, const std::optional<Norm>& norm, Call::Goes goes) {
  const Product& product = products_[static_cast<size_t>(w.id)];
  calls_.push_back({.layer = layer_,
                    .name = product.name,
                    .rows = rows,
                    .out = w.rows,
                    .in = w.cols,
                    .parts = product.parts,
                    .goes = goes,
                    .normed = norm.has_value()});
  return shape(rows, w.rows);
}

void RecordingOps::experts(int64_t pairs, const StackRef& w) {
  const Product& product = products_[static_cast<size_t>(w.id)];
  calls_.push_back({.kind = Call::Kind::kExperts,
                    .layer = layer_,
                    .name = product.name,
                    .rows = pairs,
                    .out = w.rows,
                    .in = w.cols,
                    .parts = product.parts,
                    .experts = w.count});
}

Act RecordingOps::moe(const Act& x, const std::optional<Norm>&, const MoeLayer& layer) {
  product(x.rows, layer.router.gate);
  experts(x.rows * layer.router.top_k, layer.gate_up);
  experts(x.rows * layer.router.top_k, layer.down);
  if (layer.shared_gate_up) product(x.rows, layer.shared_gate_up);
  if (layer.shared_gate) product(x.rows, layer.shared_gate);
  if (layer.shared_down) product(x.rows, layer.shared_down);
  return shape(x.rows, layer.down.rows);
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
