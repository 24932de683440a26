#pragma once
/// Gated MLP: down( act(gate·x) ⊙ (up·x) ) (models.md 1.4).
#include <optional>
#include <string>

#include "models/blocks/loader.h"

namespace galvani::models {

class Mlp {
 public:
  /// Tensors `prefix`.{gate,up,down}_proj (+ .bias).
  static Result<Mlp> load(Loader& loader, const std::string& prefix, int64_t hidden, int64_t inner,
                          exec::Activation activation, bool bias = false);

  /// residual += post_norm( mlp(norm(residual)) )
  void forward(exec::Ops& ops, const std::optional<exec::Norm>& norm, const std::optional<exec::Norm>& post_norm,
               exec::Act& residual) const;

  /// mlp(norm(x)), for families that do more with it than add it.
  exec::Act value(exec::Ops& ops, const std::optional<exec::Norm>& norm, const exec::Act& x) const;

 private:
  exec::LinearRef gate_up_, down_;
  exec::Activation activation_ = exec::Activation::kSilu;
};

}  // namespace galvani::models
