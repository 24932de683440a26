#include "models/blocks/loader.h"

#include <algorithm>

#include "core/error.h"

namespace galvani::models {

Result<exec::LinearRef> Loader::linear(const std::vector<MatrixSpec>& matrices, int64_t cols, bool bias) {
  std::vector<exec::LinearPart> parts;
  for (const MatrixSpec& spec : matrices) {
    GALVANI_TRY(exec::LinearPart one, part(spec, cols, bias));
    parts.push_back(std::move(one));
  }
  return ops_.load_linear(matrices.front().module, parts);
}

Result<exec::LinearPart> Loader::part(const MatrixSpec& matrix, int64_t cols, bool bias) {
  exec::LinearPart part;
  GALVANI_TRY(part.matrix, checkpoint_.matrix(matrix.module, matrix.rows, cols));
  if (bias) {
    GALVANI_TRY(part.bias, checkpoint_.vector(matrix.module + ".bias", matrix.rows));
  }
  return part;
}

Result<exec::Norm> Loader::norm(const std::string& name, int64_t dim, float eps, bool zero_centred) {
  GALVANI_TRY(const exec::VectorRef weight, vector(name + ".weight", dim));
  return exec::Norm{.weight = weight, .eps = eps, .plus_one = zero_centred && !checkpoint_.norms_folded()};
}

Result<exec::VectorRef> Loader::vector(const std::string& full_name, int64_t size) {
  GALVANI_TRY(const std::vector<float> values, checkpoint_.vector(full_name, size));
  return ops_.load_vector(values);
}

void Loader::layer_done(int layer) {
  // The head and the embedding weigh about as much as a few layers; one more step keeps the bar honest at the end.
  if (progress_) progress_(static_cast<double>(layer + 1) / (layers_ + 1));
}

Status Loader::finish() {
  const std::vector<std::string> left = checkpoint_.unused();
  if (progress_) progress_(1.0);
  if (left.empty()) return {};
  std::string list;
  for (size_t i = 0; i < std::min<size_t>(left.size(), 5); ++i) list += (i == 0 ? "" : ", ") + left[i];
  return fail(ErrorCode::kUnsupported,
              "{} holds {} tensors that this model family does not use ({}{}); the output would be wrong without them. "
              "The config.json may belong to another model",
              checkpoint_.path().string(), left.size(), list, left.size() > 5 ? ", …" : "");
}

}  // namespace galvani::models
