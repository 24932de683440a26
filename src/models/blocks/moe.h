#pragma once
/// Mixture of experts: router, experts and, where a family has one, the expert that serves every token (models.md 1.4).
#include <optional>
#include <string>
#include <vector>

#include "formats/config_reader.h"
#include "models/blocks/experts.h"

namespace galvani::models {

/// Names are relative to the layer ("mlp", "mlp.gate"); empty means that the family has no such part.
struct MoeSpec {
  ExpertsSpec experts;  ///< its prefix too is relative
  std::string router = "mlp.gate";
  bool router_bias = false;
  /// How to choose and weigh; `gate`, `norm`, `selection_bias` and `expert_scale`, `experts` and `top_k` are filled in
  /// by load.
  exec::Router routing;
  std::string selection_bias;  ///< full tensor name (e_score_correction_bias)
  std::string expert_scale;    ///< full tensor name (Gemma 4's per_expert_scale)
  exec::GatedActivation activation;
  std::string shared;        ///< module of the shared expert
  int64_t shared_inner = 0;  ///< its width
  std::string shared_gate;   ///< module of its gate [1, hidden]
};

class Moe {
 public:
  /// `layer` is "model.layers.3.". Numbers that cannot be (top_k beyond the experts, groups that do not divide them)
  /// are refused by name before anything is read. A router norm (Gemma 4) is set by the family: `routing.norm`.
  static Result<Moe> load(Loader& loader, const std::string& layer, const MoeSpec& spec);

  /// residual += post_norm( moe(norm(residual)) )
  void forward(exec::Ops& ops, const std::optional<exec::Norm>& norm, const std::optional<exec::Norm>& post_norm,
               exec::Act& residual) const;
  /// For families that add it themselves.
  const exec::MoeLayer& layer() const { return layer_; }

 private:
  exec::MoeLayer layer_;
};

/// num_experts, or num_local_experts as newer files call it (they may hold both, equal).
Result<int> read_expert_count(formats::ConfigReader& config);
/// Experts a token uses, of `experts` in a layer (0: the model has none, and any number is taken).
Result<int> read_active_experts(formats::ConfigReader& config, int experts, std::optional<int> fallback,
                                const std::string& key = "num_experts_per_tok");

/// Which layers have experts (Qwen's rule): layer i does iff mlp_only_layers does not list it and i + 1 is a multiple
/// of decoder_sparse_step.
Result<std::vector<bool>> expert_layers(formats::ConfigReader& config, int layers, int experts);

}  // namespace galvani::models
