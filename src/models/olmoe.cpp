// OLMoE (models.md 3.10): q and k normed over all heads at once, then clipped with v; experts weighed by their share of
// the softmax over all of them, which sums to less than 1.
#include "core/error.h"
#include "models/blocks/common_config.h"
#include "models/blocks/decoder.h"
#include "models/families.h"

namespace galvani::models {

Result<std::unique_ptr<Model>> load_olmoe(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress) {
  formats::ConfigReader config(checkpoint.config(), checkpoint.path().string());
  GALVANI_TRY(const CommonConfig common, read_common(config, {.eps = 1e-5}));
  GALVANI_TRY(const exec::Activation activation, read_activation(config, "hidden_act", "silu"));
  GALVANI_TRY(const bool attention_bias, config.boolean("attention_bias", false));
  GALVANI_TRY(const double clip, config.number("clip_qkv", 0.0, 1e30, 0.0));
  GALVANI_TRY(const formats::RopeParams rope, formats::parse_rope(config, "full_attention", {.theta = 10000.0}));
  MoeSpec moe{.activation = activation};
  moe.experts = {.prefix = "mlp", .hidden = common.hidden, .inner = common.inner};
  GALVANI_TRY(moe.experts.count, read_expert_count(config));
  GALVANI_TRY(moe.experts.active, read_active_experts(config, moe.experts.count, 8));
  GALVANI_TRY(moe.routing.renormalize, config.boolean("norm_topk_prob", false));
  GALVANI_TRY_VOID(config.finish());

  Loader loader(checkpoint, ops, common.layers, progress);
  GALVANI_TRY(const exec::RopeRef rope_ref, load_rope(loader, rope, common.head_dim));
  DecoderSpec spec{.info = model_info("olmoe", common, checkpoint), .ends = ends_spec(common), .eps = common.eps};
  AttentionSpec attention = attention_spec(common, rope_ref);
  attention.qkv_bias = attention.out_bias = attention_bias;
  attention.qk_norm = attention.qk_norm_whole = true;
  attention.clip = static_cast<float>(clip);
  for (int i = 0; i < common.layers; ++i) spec.layers.push_back({.attention = attention, .moe = moe});
  return load_decoder(std::move(spec), loader);
}

}  // namespace galvani::models
