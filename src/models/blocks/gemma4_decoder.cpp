#include "models/blocks/gemma4_decoder.h"

#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "models/blocks/kv_groups.h"
#include "models/blocks/mlp.h"

namespace galvani::models {
namespace {

/// Experts beside the dense MLP: f = after_mlp(mlp(x)) + after_moe(moe(before_moe(x))), routed by x itself.
struct MlpAndExperts {
  exec::Norm after_mlp, before_moe, after_moe;
  Moe moe;
};

struct Layer {
  exec::Norm before_attention, after_attention, before_mlp, after_mlp;
  Attention attention;
  Mlp mlp;
  std::optional<MlpAndExperts> experts;
  std::optional<PerLayerStep> per_layer;
  float scalar = 1;
};

class Gemma4Decoder final : public Model {
 public:
  const ModelInfo& info() const override { return info_; }
  exec::StateSpec state_spec() const override { return state_; }

  exec::Act forward(const exec::Batch&, exec::Ops& ops) const override {
    exec::Act x = ends_.embed(ops);
    exec::Act inputs;
    if (per_layer_) inputs = per_layer_->make(ops, x);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      ops.begin_layer(static_cast<int>(i));
      layer.attention.forward(ops, layer.before_attention, layer.after_attention, x);
      feed_forward(ops, layer, x);
      if (layer.per_layer) layer.per_layer->forward(ops, per_layer_->of_layer(ops, inputs, i), x);
      ops.scale(x, layer.scalar);
      if (i + 1 < layers_.size()) ops.tap(x);
    }
    return ends_.logits(ops, x);
  }

  static void feed_forward(exec::Ops& ops, const Layer& layer, exec::Act& x) {
    if (!layer.experts) return layer.mlp.forward(ops, layer.before_mlp, layer.after_mlp, x);
    const MlpAndExperts& experts = *layer.experts;
    exec::Act sum = ops.norm(layer.mlp.value(ops, layer.before_mlp, x), experts.after_mlp);
    ops.add(ops.moe(x, experts.before_moe, experts.moe.layer()), experts.after_moe, sum);
    ops.add(sum, layer.after_mlp, x);
  }

  ModelInfo info_;
  exec::StateSpec state_;
  Ends ends_;
  std::optional<PerLayerInputs> per_layer_;
  std::vector<Layer> layers_;
};

// A layer that reads another's keys and values takes no room of its own.
void place_kv(std::vector<Gemma4Layer>& layers, exec::StateSpec& state) {
  for (Gemma4Layer& layer : layers) {
    if (layer.donor < 0) {
      assign_kv(layer.attention, state);
      continue;
    }
    const AttentionSpec& donor = layers[static_cast<size_t>(layer.donor)].attention;
    layer.attention.kv_group = donor.kv_group;
    layer.attention.kv_index = donor.kv_index;
  }
}

// Numbers that would turn everything after them, or every choice, into NaN.
Result<std::vector<float>> finite_vector(Loader& loader, const std::string& name, int64_t size) {
  GALVANI_TRY(std::vector<float> values, loader.checkpoint().vector(name, size));
  for (size_t i = 0; i < values.size(); ++i)
    if (!std::isfinite(values[i]))
      return fail(ErrorCode::kCorrupt, "{}: {}[{}] is {}; it must be a finite number",
                  loader.checkpoint().path().string(), name, i, values[i]);
  return values;
}

// The router reads rms(x) · scale · hidden^-½; both factors become one norm weight.
Result<exec::Norm> router_norm(Loader& loader, const std::string& name, int64_t hidden, float eps) {
  GALVANI_TRY(std::vector<float> scale, finite_vector(loader, name, hidden));
  const double root = 1.0 / std::sqrt(static_cast<double>(hidden));
  for (float& value : scale) value = static_cast<float>(value * root);
  GALVANI_TRY(const exec::VectorRef weight, loader.ops().load_vector(scale));
  return exec::Norm{.weight = weight, .eps = eps};
}

Result<MlpAndExperts> load_experts(Loader& loader, const Gemma4Spec& spec, const std::string& layer) {
  MlpAndExperts result;
  const int64_t hidden = spec.info.hidden;
  const auto norm = [&](const char* name) { return loader.norm(layer + name, hidden, spec.eps); };
  GALVANI_TRY(result.after_mlp, norm(".post_feedforward_layernorm_1"));
  GALVANI_TRY(result.before_moe, norm(".pre_feedforward_layernorm_2"));
  GALVANI_TRY(result.after_moe, norm(".post_feedforward_layernorm_2"));
  MoeSpec moe = *spec.moe;
  GALVANI_TRY(moe.routing.norm, router_norm(loader, layer + ".router.scale", hidden, spec.eps));
  GALVANI_TRY(result.moe, Moe::load(loader, layer, moe));
  return result;
}

Result<Layer> load_layer(Loader& loader, const Gemma4Spec& spec, const std::string& prefix, const Gemma4Layer& layer) {
  Layer result;
  const int64_t hidden = spec.info.hidden;
  const auto norm = [&](const char* name) { return loader.norm(prefix + name, hidden, spec.eps); };
  GALVANI_TRY(result.before_attention, norm("input_layernorm"));
  GALVANI_TRY(result.after_attention, norm("post_attention_layernorm"));
  GALVANI_TRY(result.before_mlp, norm("pre_feedforward_layernorm"));
  GALVANI_TRY(result.after_mlp, norm("post_feedforward_layernorm"));
  GALVANI_TRY(result.attention, Attention::load(loader, prefix + "self_attn", layer.attention));
  if (layer.donor >= 0) {  // released files carry tensors that nothing reads
    for (const char* name : {"k_proj", "v_proj", "k_norm", "v_norm"})
      loader.checkpoint().ignore_prefix(prefix + "self_attn." + name + ".");
  }
  GALVANI_TRY(result.mlp, Mlp::load(loader, prefix + "mlp", hidden, layer.inner, spec.activation));
  if (spec.moe) {
    GALVANI_TRY(result.experts, load_experts(loader, spec, prefix.substr(0, prefix.size() - 1)));
  }
  if (spec.per_layer.width > 0) {
    GALVANI_TRY(result.per_layer, PerLayerStep::load(loader, prefix, spec.per_layer, spec.activation));
  }
  GALVANI_TRY(const std::vector<float> scalar, finite_vector(loader, prefix + "layer_scalar", 1));
  result.scalar = scalar.front();
  return result;
}

}  // namespace

Result<std::unique_ptr<Model>> load_gemma4_decoder(Gemma4Spec spec, Loader& loader) {
  auto model = std::make_unique<Gemma4Decoder>();
  model->info_ = spec.info;
  place_kv(spec.layers, model->state_);
  GALVANI_TRY(model->ends_, Ends::load(loader, spec.ends));
  if (spec.per_layer.width > 0) {
    GALVANI_TRY(model->per_layer_, PerLayerInputs::load(loader, spec.per_layer));
  }
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    GALVANI_TRY(Layer layer, load_layer(loader, spec, fmt::format("model.layers.{}.", i), spec.layers[i]));
    model->layers_.push_back(std::move(layer));
    loader.layer_done(static_cast<int>(i));
  }
  GALVANI_TRY_VOID(loader.finish());
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace galvani::models
