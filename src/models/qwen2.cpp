// Qwen2, Qwen2.5 (models.md 3.2): llama with a bias on q, k and v.
#include "core/error.h"
#include "models/blocks/common_config.h"
#include "models/blocks/decoder.h"
#include "models/blocks/layer_types.h"
#include "models/families.h"

namespace galvani::models {

Result<std::unique_ptr<Model>> load_qwen2(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress) {
  formats::ConfigReader config(checkpoint.config(), checkpoint.path().string());
  GALVANI_TRY(const CommonConfig common, read_common(config, {.eps = 1e-6}));
  GALVANI_TRY(const exec::Activation activation, read_activation(config, "hidden_act", "silu"));
  GALVANI_TRY(const std::vector<int> windows, layer_windows(config, common.layers, {.needs_use_sliding_window = true}));
  GALVANI_TRY(const formats::RopeParams rope, formats::parse_rope(config, "full_attention", {.theta = 10000.0}));
  GALVANI_TRY_VOID(config.finish());

  Loader loader(checkpoint, ops, common.layers, progress);
  GALVANI_TRY(const exec::RopeRef rope_ref, load_rope(loader, rope, common.head_dim));
  DecoderSpec spec{.info = model_info("qwen2", common, checkpoint), .ends = ends_spec(common), .eps = common.eps};
  AttentionSpec attention = attention_spec(common, rope_ref);
  attention.qkv_bias = true;
  for (const int window : windows) {
    attention.window = window;
    spec.layers.push_back({.attention = attention, .inner = common.inner, .activation = activation});
  }
  return load_decoder(std::move(spec), loader);
}

}  // namespace galvani::models
