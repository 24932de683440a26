#include "models/blocks/moe.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "exec/router.h"
#include "formats/quoted.h"

namespace galvani::models {
namespace {

/// A vector that choosing depends on: a NaN in it would choose no expert at all.
Result<exec::VectorRef> finite_vector(Loader& loader, const std::string& name, int64_t size) {
  GALVANI_TRY(const std::vector<float> values, loader.checkpoint().vector(name, size));
  for (size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      return fail(ErrorCode::kCorrupt, "{}: {}[{}] is {}; a router needs finite numbers",
                  loader.checkpoint().path().string(), name, i, values[i]);
  return loader.ops().load_vector(values);
}

Status load_shared(Loader& loader, const std::string& layer, const MoeSpec& spec, exec::MoeLayer& to) {
  if (spec.shared.empty()) return {};
  const int64_t hidden = spec.experts.hidden, inner = spec.shared_inner;
  const std::string module = layer + spec.shared;
  GALVANI_TRY(to.shared_gate_up, loader.linear({{module + ".gate_proj", inner}, {module + ".up_proj", inner}}, hidden));
  GALVANI_TRY(to.shared_down, loader.linear({{module + ".down_proj", hidden}}, inner));
  if (spec.shared_gate.empty()) return {};
  GALVANI_TRY(to.shared_gate, loader.linear({{layer + spec.shared_gate, 1}}, hidden));
  return {};
}

}  // namespace

Result<Moe> Moe::load(Loader& loader, const std::string& layer, const MoeSpec& spec) {
  Moe block;
  exec::MoeLayer& to = block.layer_;
  exec::Router& router = to.router;
  router = spec.routing;
  router.experts = spec.experts.count;
  router.top_k = spec.experts.active;
  if (auto possible = kernels::check_route(exec::route_params(router)); !possible) {
    Error error = std::move(possible).error();
    error.code = ErrorCode::kCorrupt;  // the numbers are the checkpoint's
    return wrap(std::move(error), loader.checkpoint().path().string());
  }
  GALVANI_TRY(router.gate,
              loader.linear({{layer + spec.router, spec.experts.count}}, spec.experts.hidden, spec.router_bias));
  if (!spec.selection_bias.empty()) {
    GALVANI_TRY(router.selection_bias, finite_vector(loader, layer + spec.selection_bias, router.experts));
  }
  if (!spec.expert_scale.empty()) {
    GALVANI_TRY(router.expert_scale, finite_vector(loader, layer + spec.expert_scale, router.experts));
  }
  ExpertsSpec experts_spec = spec.experts;
  experts_spec.prefix = layer + spec.experts.prefix;
  GALVANI_TRY(const Experts experts, load_experts(loader, experts_spec));
  to.gate_up = experts.gate_up;
  to.down = experts.down;
  to.activation = spec.activation;
  GALVANI_TRY_VOID(load_shared(loader, layer, spec, to));
  return block;
}

void Moe::forward(exec::Ops& ops, const std::optional<exec::Norm>& norm, const std::optional<exec::Norm>& post_norm,
                  exec::Act& residual) const {
  ops.add(ops.moe(residual, norm, layer_), post_norm, residual);
}

Result<int> read_expert_count(formats::ConfigReader& config) {
  GALVANI_TRY(const int64_t local, config.integer("num_local_experts", 0, 65536, 0));
  GALVANI_TRY(const int64_t experts, config.integer("num_experts", 0, 65536, local));
  if (local != 0 && local != experts)
    return fail(ErrorCode::kCorrupt, "{}: num_experts is {}, num_local_experts {}; they must be equal", config.label(),
                experts, local);
  return static_cast<int>(experts);
}

Result<int> read_active_experts(formats::ConfigReader& config, int experts, std::optional<int> fallback,
                                const std::string& key) {
  GALVANI_TRY(const int64_t active, config.integer(key, 1, 65536, fallback));
  if (experts > 0 && active > experts)
    return fail(ErrorCode::kCorrupt, "{}: {} is {}, but a layer has {} experts to choose from; allowed: 1 to {}",
                config.label(), formats::quote(key), active, experts, experts);
  return static_cast<int>(active);
}

Result<std::vector<bool>> expert_layers(formats::ConfigReader& config, int layers, int experts) {
  GALVANI_TRY(const std::vector<int64_t> dense, config.integers("mlp_only_layers", 0, layers - 1));
  GALVANI_TRY(const int64_t step, config.integer("decoder_sparse_step", 1, int64_t{1} << 24, 1));
  std::vector<bool> result;
  for (int64_t i = 0; i < layers; ++i)
    result.push_back(experts > 0 && (i + 1) % step == 0 && std::find(dense.begin(), dense.end(), i) == dense.end());
  return result;
}

}  // namespace galvani::models
