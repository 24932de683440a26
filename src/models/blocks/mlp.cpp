#include "models/blocks/mlp.h"

#include "core/error.h"

namespace galvani::models {

Result<Mlp> Mlp::load(Loader& loader, const std::string& prefix, int64_t hidden, int64_t inner,
                      exec::Activation activation, bool bias) {
  Mlp block;
  block.activation_ = activation;
  GALVANI_TRY(block.gate_up_,
              loader.linear({{prefix + ".gate_proj", inner}, {prefix + ".up_proj", inner}}, hidden, bias));
  GALVANI_TRY(block.down_, loader.linear({{prefix + ".down_proj", hidden}}, inner, bias));
  return block;
}

void Mlp::forward(exec::Ops& ops, const std::optional<exec::Norm>& norm, const std::optional<exec::Norm>& post_norm,
                  exec::Act& residual) const {
  const exec::Act inner = ops.gated_mlp(residual, norm, gate_up_, activation_);
  ops.linear_add(inner, down_, post_norm, residual);
}

exec::Act Mlp::value(exec::Ops& ops, const std::optional<exec::Norm>& norm, const exec::Act& x) const {
  return ops.linear(ops.gated_mlp(x, norm, gate_up_, activation_), std::nullopt, down_);
}

}  // namespace galvani::models
