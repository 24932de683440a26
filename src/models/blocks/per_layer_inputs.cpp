#include "models/blocks/per_layer_inputs.h"

#include <cmath>

#include "core/error.h"
#include "models/blocks/ends.h"

namespace galvani::models {

Result<PerLayerInputs> PerLayerInputs::load(Loader& loader, const PerLayerSpec& spec) {
  PerLayerInputs block;
  block.spec_ = spec;
  const int64_t all = spec.width * spec.layers;
  GALVANI_TRY(const quant::MatrixPtr table,
              loader.checkpoint().matrix("model.embed_tokens_per_layer", spec.vocab, all));
  GALVANI_TRY(block.table_, loader.ops().load_embedding(table));
  GALVANI_TRY(block.projection_, loader.linear({{"model.per_layer_model_projection", all}}, spec.hidden));
  GALVANI_TRY(block.norm_, loader.norm("model.per_layer_projection_norm", spec.width, spec.eps));
  return block;
}

exec::Act PerLayerInputs::make(exec::Ops& ops, const exec::Act& x) const {
  exec::Act all = ops.embed(table_, gemma_embed_scale(spec_.width));
  exec::Act context = ops.linear(x, std::nullopt, projection_);
  ops.scale(context, 1.0f / std::sqrt(static_cast<float>(spec_.hidden)));
  for (size_t layer = 0; layer < static_cast<size_t>(spec_.layers); ++layer) {
    exec::Act input = of_layer(ops, all, layer);
    ops.add(of_layer(ops, context, layer), norm_, input);
  }
  ops.scale(all, std::sqrt(0.5f));
  return all;
}

exec::Act PerLayerInputs::of_layer(exec::Ops& ops, const exec::Act& all, size_t layer) const {
  return ops.columns(all, static_cast<int64_t>(layer) * spec_.width, spec_.width);
}

Result<PerLayerStep> PerLayerStep::load(Loader& loader, const std::string& prefix, const PerLayerSpec& spec,
                                        exec::Activation activation) {
  PerLayerStep step;
  step.activation_ = activation;
  GALVANI_TRY(step.gate_, loader.linear({{prefix + "per_layer_input_gate", spec.width}}, spec.hidden));
  GALVANI_TRY(step.projection_, loader.linear({{prefix + "per_layer_projection", spec.hidden}}, spec.width));
  GALVANI_TRY(step.norm_, loader.norm(prefix + "post_per_layer_input_norm", spec.hidden, spec.eps));
  return step;
}

void PerLayerStep::forward(exec::Ops& ops, const exec::Act& input, exec::Act& residual) const {
  const exec::Act gate = ops.linear(residual, std::nullopt, gate_);
  ops.linear_add(ops.activate(gate, input, activation_), projection_, norm_, residual);
}

}  // namespace galvani::models
