#pragma once
/// What every family does while loading: hand tensors of a checkpoint to an Ops, with progress.
#include <string>
#include <vector>

#include "exec/ops.h"
#include "models/model.h"
#include "quant/checkpoint.h"

namespace galvani::models {

/// A matrix to load: module path and the rows it must have.
struct MatrixSpec {
  std::string module;
  int64_t rows = 0;
};

class Loader {
 public:
  /// `layers` is only for the progress shown.
  Loader(quant::Checkpoint& checkpoint, exec::Ops& ops, int layers, const Progress& progress)
      : checkpoint_(checkpoint), ops_(ops), layers_(layers), progress_(progress) {}

  quant::Checkpoint& checkpoint() { return checkpoint_; }
  exec::Ops& ops() { return ops_; }

  /// The matrices stacked by rows into one product, all [rows, cols]; with `bias` their ".bias" vectors too.
  Result<exec::LinearRef> linear(const std::vector<MatrixSpec>& matrices, int64_t cols, bool bias = false);
  /// One of them, for a product that is put together by hand.
  Result<exec::LinearPart> part(const MatrixSpec& matrix, int64_t cols, bool bias = false);
  /// `name`.weight of `dim` elements. `zero_centred`: the family multiplies by 1 + w; a checkpoint whose norms are
  /// folded (the 1 already added) is read as it is.
  Result<exec::Norm> norm(const std::string& name, int64_t dim, float eps, bool zero_centred = false);
  Result<exec::VectorRef> vector(const std::string& full_name, int64_t size);
  /// Tells the progress callback that layer `layer` is done.
  void layer_done(int layer);
  /// Every tensor must have been used; the error lists the first few that were not.
  Status finish();

 private:
  quant::Checkpoint& checkpoint_;
  exec::Ops& ops_;
  int layers_;
  const Progress& progress_;
};

}  // namespace galvani::models
