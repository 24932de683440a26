#pragma once
/// Gemma 4's decoder (models.md 3.8): sandwich norms, experts beside the dense MLP, per-layer inputs, layers that read
/// the keys and values of an earlier one, and a factor on each layer's output.
#include <memory>
#include <optional>
#include <vector>

#include "models/blocks/attention.h"
#include "models/blocks/ends.h"
#include "models/blocks/moe.h"
#include "models/blocks/per_layer_inputs.h"
#include "models/model.h"

namespace galvani::models {

struct Gemma4Layer {
  AttentionSpec attention;  ///< kv_group and kv_index are filled in by load_gemma4_decoder
  int64_t inner = 0;        ///< width of the dense MLP
  int donor = -1;           ///< layer whose keys and values this one reads; -1: its own
};

struct Gemma4Spec {
  ModelInfo info;
  EndsSpec ends;
  std::vector<Gemma4Layer> layers;
  PerLayerSpec per_layer;      ///< width 0: none
  std::optional<MoeSpec> moe;  ///< in every layer, beside its MLP; the router's norm is filled in by layer
  exec::Activation activation = exec::Activation::kGeluTanh;
  float eps = 1e-6f;
};

Result<std::unique_ptr<Model>> load_gemma4_decoder(Gemma4Spec spec, Loader& loader);

}  // namespace galvani::models
