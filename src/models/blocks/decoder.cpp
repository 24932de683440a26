#include "models/blocks/decoder.h"

#include <fmt/format.h>

#include <variant>

#include "core/error.h"
#include "models/blocks/kv_groups.h"

namespace galvani::models {
namespace {

struct Layer {
  exec::Norm before_attention, before_mlp;
  std::optional<exec::Norm> after_attention, after_mlp;
  std::variant<Attention, GatedDelta, LatentAttention> mixer;
  Mlp mlp;
  std::optional<Moe> moe;  // instead of the MLP
};

class Decoder final : public Model {
 public:
  const ModelInfo& info() const override { return info_; }
  exec::StateSpec state_spec() const override { return state_; }

  exec::Act forward(const exec::Batch&, exec::Ops& ops) const override {
    exec::Act x = ends_.embed(ops);
    for (size_t i = 0; i < layers_.size(); ++i) {
      const Layer& layer = layers_[i];
      ops.begin_layer(static_cast<int>(i));
      std::visit([&](const auto& mixer) { mixer.forward(ops, layer.before_attention, layer.after_attention, x); },
                 layer.mixer);
      if (layer.moe)
        layer.moe->forward(ops, layer.before_mlp, layer.after_mlp, x);
      else
        layer.mlp.forward(ops, layer.before_mlp, layer.after_mlp, x);
      if (i + 1 < layers_.size()) ops.tap(x);
    }
    return ends_.logits(ops, x);
  }

  ModelInfo info_;
  exec::StateSpec state_;
  Ends ends_;
  std::vector<Layer> layers_;
};

void assign_slots(GatedDeltaSpec& delta, size_t layer, exec::StateSpec& state) {
  delta.conv_slot = static_cast<int>(state.slots.size());
  state.slots.push_back({.name = fmt::format("layer {} convolution", layer),
                         .shape = Shape({int64_t{delta.kernel} - 1, delta.channels()})});
  delta.state_slot = static_cast<int>(state.slots.size());
  state.slots.push_back({.name = fmt::format("layer {} delta net", layer),
                         .shape = Shape({int64_t{delta.value_heads}, int64_t{delta.k_dim}, int64_t{delta.v_dim}})});
}

Result<Layer> load_layer(Loader& loader, const DecoderSpec& spec, const std::string& prefix,
                         const DecoderLayerSpec& layer) {
  Layer result;
  const int64_t hidden = spec.info.hidden;
  const auto norm = [&](const char* name) {
    return loader.norm(prefix + name, hidden, spec.eps, spec.norm_zero_centred);
  };
  GALVANI_TRY(result.before_attention, norm("input_layernorm"));
  if (spec.sandwich) {
    GALVANI_TRY(result.after_attention, norm("post_attention_layernorm"));
    GALVANI_TRY(result.before_mlp, norm("pre_feedforward_layernorm"));
    GALVANI_TRY(result.after_mlp, norm("post_feedforward_layernorm"));
  } else {
    GALVANI_TRY(result.before_mlp, norm("post_attention_layernorm"));
  }
  if (layer.delta) {
    GALVANI_TRY(result.mixer, GatedDelta::load(loader, prefix + "linear_attn", *layer.delta));
  } else if (layer.latent) {
    GALVANI_TRY(result.mixer, LatentAttention::load(loader, prefix + "self_attn", *layer.latent));
  } else {
    GALVANI_TRY(result.mixer, Attention::load(loader, prefix + "self_attn", layer.attention));
  }
  if (layer.moe) {
    GALVANI_TRY(result.moe, Moe::load(loader, prefix, *layer.moe));
    return result;
  }
  GALVANI_TRY(result.mlp, Mlp::load(loader, prefix + "mlp", hidden, layer.inner, layer.activation, layer.mlp_bias));
  return result;
}

}  // namespace

Result<std::unique_ptr<Model>> load_decoder(DecoderSpec spec, Loader& loader) {
  auto model = std::make_unique<Decoder>();
  model->info_ = spec.info;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    DecoderLayerSpec& layer = spec.layers[i];
    if (layer.delta)
      assign_slots(*layer.delta, i, model->state_);
    else if (layer.latent)
      assign_kv(*layer.latent, model->state_);
    else
      assign_kv(layer.attention, model->state_);
  }
  GALVANI_TRY(model->ends_, Ends::load(loader, spec.ends));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    GALVANI_TRY(Layer layer, load_layer(loader, spec, fmt::format("model.layers.{}.", i), spec.layers[i]));
    model->layers_.push_back(std::move(layer));
    loader.layer_done(static_cast<int>(i));
  }
  GALVANI_TRY_VOID(loader.finish());
  return std::unique_ptr<Model>(std::move(model));
}

}  // namespace galvani::models
