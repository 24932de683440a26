// Llama 3.x, SmolLM2, Mistral-7B (models.md 3.1): pre-norm decoder, grouped-query attention, SwiGLU.
#include "core/error.h"
#include "models/blocks/common_config.h"
#include "models/blocks/decoder.h"
#include "models/blocks/layer_types.h"
#include "models/families.h"

namespace galvani::models {

Result<std::unique_ptr<Model>> load_llama(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress) {
  formats::ConfigReader config(checkpoint.config(), checkpoint.path().string());
  GALVANI_TRY(const CommonConfig common, read_common(config, {.eps = 1e-6}));
  GALVANI_TRY(const exec::Activation activation, read_activation(config, "hidden_act", "silu"));
  GALVANI_TRY(const bool attention_bias, config.boolean("attention_bias", false));
  GALVANI_TRY(const bool mlp_bias, config.boolean("mlp_bias", false));
  GALVANI_TRY(const std::vector<int> windows, layer_windows(config, common.layers, {.every_layer_slides = true}));
  GALVANI_TRY(const formats::RopeParams rope, formats::parse_rope(config, "full_attention", {.theta = 10000.0}));
  GALVANI_TRY_VOID(config.finish());

  Loader loader(checkpoint, ops, common.layers, progress);
  GALVANI_TRY(const exec::RopeRef rope_ref, load_rope(loader, rope, common.head_dim));
  DecoderSpec spec{.info = model_info("llama", common, checkpoint), .ends = ends_spec(common), .eps = common.eps};
  AttentionSpec attention = attention_spec(common, rope_ref);
  attention.qkv_bias = attention.out_bias = attention_bias;
  for (const int window : windows) {
    attention.window = window;
    spec.layers.push_back(
        {.attention = attention, .inner = common.inner, .activation = activation, .mlp_bias = mlp_bias});
  }
  return load_decoder(std::move(spec), loader);
}

}  // namespace galvani::models
