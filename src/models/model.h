#pragma once
/// A loaded model: written once against Ops.
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/ops.h"
#include "quant/checkpoint.h"

namespace galvani::models {

struct ModelInfo {
  std::string family;  ///< model_type
  int layers = 0;
  int64_t hidden = 0;
  int64_t vocab = 0;    ///< rows of the head
  int64_t context = 0;  ///< max_position_embeddings
  std::vector<int32_t> eos_ids;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual const ModelInfo& info() const = 0;
  virtual exec::StateSpec state_spec() const = 0;
  /// Logits of the batch's logit rows. The caller has begun the step and ends it.
  virtual exec::Act forward(const exec::Batch& batch, exec::Ops& ops) const = 0;
};

/// Called while loading with the share done, 0…1.
using Progress = std::function<void(double)>;

/// Loads whatever family the checkpoint's model_type names. An unknown one lists those supported; a tensor that is
/// missing, mis-shaped or left unused, or a config key that would change the maths, stops the load.
Result<std::unique_ptr<Model>> load_model(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress = {});

/// model_type names that load_model accepts.
std::vector<std::string> supported_families();

}  // namespace galvani::models
