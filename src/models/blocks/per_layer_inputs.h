#pragma once
/// Gemma 4's per-layer inputs (models.md 3.8, PLE): besides the residual stream every layer gets a small vector of its
/// own, made before the first layer from the token and from its embedding.
#include <string>
#include <vector>

#include "models/blocks/loader.h"

namespace galvani::models {

struct PerLayerSpec {
  int64_t vocab = 0;  ///< rows of the table
  int64_t width = 0;  ///< of one layer's vector; 0: the model has none
  int64_t hidden = 0;
  int layers = 0;
  float eps = 1e-6f;
};

class PerLayerInputs {
 public:
  /// Tensors model.embed_tokens_per_layer, model.per_layer_model_projection, model.per_layer_projection_norm.
  static Result<PerLayerInputs> load(Loader& loader, const PerLayerSpec& spec);

  /// [rows, layers · width] from the scaled embedding x: (norm(x · Wᵀ · hidden^-½) + table[token] · √width) / √2, the
  /// norm over each layer's vector. To be called before layer 0, so that it lasts the step.
  exec::Act make(exec::Ops& ops, const exec::Act& x) const;
  exec::Act of_layer(exec::Ops& ops, const exec::Act& all, size_t layer) const;

 private:
  PerLayerSpec spec_;
  exec::EmbeddingRef table_;
  exec::LinearRef projection_;
  exec::Norm norm_;
};

/// What a layer does with its vector: x += norm( projection( gelu_tanh(gate · x) ⊙ input ) ).
class PerLayerStep {
 public:
  /// Tensors `prefix`per_layer_input_gate, per_layer_projection, post_per_layer_input_norm.
  static Result<PerLayerStep> load(Loader& loader, const std::string& prefix, const PerLayerSpec& spec,
                                   exec::Activation activation);
  void forward(exec::Ops& ops, const exec::Act& input, exec::Act& residual) const;

 private:
  exec::LinearRef gate_, projection_;
  exec::Norm norm_;
  exec::Activation activation_ = exec::Activation::kGeluTanh;
};

}  // namespace galvani::models
