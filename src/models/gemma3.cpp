// Gemma 3 (models.md 3.7): sandwich norms with 1 + w, two ropes, five sliding layers to one full, GeGLU, scaled
// embedding.
#include <cmath>

#include "core/error.h"
#include "models/blocks/common_config.h"
#include "models/blocks/decoder.h"
#include "models/blocks/layer_types.h"
#include "models/families.h"

namespace galvani::models {
namespace {

// The defaults of Gemma3TextConfig: the published 4B config states only what differs from them.
constexpr CommonDefaults kDefaults{.eps = 1e-6,
                                   .tied = true,
                                   .context = 131072,
                                   .hidden = 2304,
                                   .inner = 9216,
                                   .vocab = 262208,
                                   .layers = 26,
                                   .heads = 8,
                                   .kv_heads = 4,
                                   .head_dim = 256};

}  // namespace

Result<std::unique_ptr<Model>> load_gemma3(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress) {
  formats::ConfigReader config(checkpoint.config(), checkpoint.path().string());
  GALVANI_TRY(const CommonConfig common, read_common(config, kDefaults));
  GALVANI_TRY(const exec::Activation activation, read_activation(config, "hidden_activation", "gelu_pytorch_tanh"));
  GALVANI_TRY(const bool attention_bias, config.boolean("attention_bias", false));
  GALVANI_TRY(const double query_scalar, config.number("query_pre_attn_scalar", 1e-6, 1e9, 256.0));
  GALVANI_TRY(const std::vector<int> windows,
              layer_windows(config, common.layers, {.default_pattern = 6, .default_window = 4096}));
  const formats::RopeDefaults defaults{.theta = 1e6, .local_theta = 1e4};
  GALVANI_TRY(const formats::RopeParams full_rope, formats::parse_rope(config, "full_attention", defaults));
  GALVANI_TRY(const formats::RopeParams sliding_rope, formats::parse_rope(config, "sliding_attention", defaults));
  GALVANI_TRY_VOID(config.finish());

  Loader loader(checkpoint, ops, common.layers, progress);
  GALVANI_TRY(const exec::RopeRef full_ref, load_rope(loader, full_rope, common.head_dim));
  GALVANI_TRY(const exec::RopeRef sliding_ref, load_rope(loader, sliding_rope, common.head_dim));
  DecoderSpec spec{.info = model_info("gemma3", common, checkpoint),
                   .ends = ends_spec(common),
                   .eps = common.eps,
                   .norm_zero_centred = true,
                   .sandwich = true};
  spec.ends.embed_scale = gemma_embed_scale(common.hidden);
  spec.ends.norm_zero_centred = true;
  AttentionSpec attention = attention_spec(common, full_ref);
  attention.qkv_bias = attention.out_bias = attention_bias;
  attention.qk_norm = attention.qk_norm_zero_centred = true;
  attention.scale = static_cast<float>(1.0 / std::sqrt(query_scalar));
  for (const int window : windows) {
    attention.window = window;
    attention.rope = window > 0 ? sliding_ref : full_ref;
    spec.layers.push_back({.attention = attention, .inner = common.inner, .activation = activation});
  }
  return load_decoder(std::move(spec), loader);
}

}  // namespace galvani::models
