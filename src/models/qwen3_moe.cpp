// Qwen3 MoE (models.md 3.4): Qwen3's attention, experts instead of the MLP in all layers but those that the config
// names.
#include "core/error.h"
#include "models/blocks/common_config.h"
#include "models/blocks/decoder.h"
#include "models/blocks/layer_types.h"
#include "models/families.h"

namespace galvani::models {

Result<std::unique_ptr<Model>> load_qwen3_moe(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress) {
  formats::ConfigReader config(checkpoint.config(), checkpoint.path().string());
  GALVANI_TRY(const CommonConfig common, read_common(config, {.eps = 1e-6}));
  GALVANI_TRY(const exec::Activation activation, read_activation(config, "hidden_act", "silu"));
  GALVANI_TRY(const bool attention_bias, config.boolean("attention_bias", false));
  GALVANI_TRY(
      const std::vector<int> windows,
      layer_windows(config, common.layers, {.needs_use_sliding_window = true, .ignores_max_window_layers = true}));
  GALVANI_TRY(const formats::RopeParams rope, formats::parse_rope(config, "full_attention", {.theta = 10000.0}));
  MoeSpec moe{.activation = activation};
  moe.experts = {.prefix = "mlp", .hidden = common.hidden};
  GALVANI_TRY(moe.experts.count, read_expert_count(config));
  GALVANI_TRY(moe.experts.active, read_active_experts(config, moe.experts.count, 8));
  GALVANI_TRY(moe.experts.inner, config.dimension("moe_intermediate_size", 768));
  GALVANI_TRY(moe.routing.renormalize, config.boolean("norm_topk_prob", false));
  GALVANI_TRY(const std::vector<bool> sparse, expert_layers(config, common.layers, moe.experts.count));
  GALVANI_TRY_VOID(config.finish());

  Loader loader(checkpoint, ops, common.layers, progress);
  GALVANI_TRY(const exec::RopeRef rope_ref, load_rope(loader, rope, common.head_dim));
  DecoderSpec spec{.info = model_info("qwen3_moe", common, checkpoint), .ends = ends_spec(common), .eps = common.eps};
  AttentionSpec attention = attention_spec(common, rope_ref);
  attention.qkv_bias = attention.out_bias = attention_bias;
  attention.qk_norm = true;
  for (size_t i = 0; i < windows.size(); ++i) {
    attention.window = windows[i];
    spec.layers.push_back({.attention = attention, .inner = common.inner, .activation = activation});
    if (sparse[i]) spec.layers.back().moe = moe;
  }
  return load_decoder(std::move(spec), loader);
}

}  // namespace galvani::models
