// Mixtral (models.md 3.10): llama with experts in every layer; softmax over the chosen logits.
#include "core/error.h"
#include "models/blocks/common_config.h"
#include "models/blocks/decoder.h"
#include "models/blocks/layer_types.h"
#include "models/families.h"

namespace galvani::models {

Result<std::unique_ptr<Model>> load_mixtral(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress) {
  formats::ConfigReader config(checkpoint.config(), checkpoint.path().string());
  GALVANI_TRY(const CommonConfig common, read_common(config, {.eps = 1e-5}));
  GALVANI_TRY(const exec::Activation activation, read_activation(config, "hidden_act", "silu"));
  GALVANI_TRY(const std::vector<int> windows, layer_windows(config, common.layers, {.every_layer_slides = true}));
  GALVANI_TRY(const formats::RopeParams rope, formats::parse_rope(config, "full_attention", {.theta = 1e6}));
  MoeSpec moe{.router = "block_sparse_moe.gate", .activation = activation};
  moe.experts = {.prefix = "block_sparse_moe",
                 .hidden = common.hidden,
                 .inner = common.inner,
                 .gate = "w1",
                 .up = "w3",
                 .down = "w2"};
  moe.routing.score = kernels::RouteScore::kSoftmaxTopK;
  GALVANI_TRY(moe.experts.count, read_expert_count(config));
  GALVANI_TRY(moe.experts.active, read_active_experts(config, moe.experts.count, 2));
  GALVANI_TRY_VOID(config.finish());

  Loader loader(checkpoint, ops, common.layers, progress);
  GALVANI_TRY(const exec::RopeRef rope_ref, load_rope(loader, rope, common.head_dim));
  DecoderSpec spec{.info = model_info("mixtral", common, checkpoint), .ends = ends_spec(common), .eps = common.eps};
  AttentionSpec attention = attention_spec(common, rope_ref);
  for (const int window : windows) {
    attention.window = window;
    spec.layers.push_back({.attention = attention, .moe = moe});
  }
  return load_decoder(std::move(spec), loader);
}

}  // namespace galvani::models
