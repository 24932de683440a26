// Qwen3-Next (models.md 3.5): gated delta nets with a gated full attention every fourth layer, experts with a gated
// shared one in all layers but those that the config names.
#include "core/error.h"
#include "models/blocks/hybrid.h"
#include "models/families.h"

namespace galvani::models {

Result<std::unique_ptr<Model>> load_qwen3_next(quant::Checkpoint& checkpoint, exec::Ops& ops,
                                               const Progress& progress) {
  formats::ConfigReader config(checkpoint.config(), checkpoint.path().string());
  GALVANI_TRY(const CommonConfig common, read_common(config, {.eps = 1e-6, .inner = 5632}));
  GALVANI_TRY(const exec::Activation activation, read_activation(config, "hidden_act", "silu"));
  Loader loader(checkpoint, ops, common.layers, progress);
  GALVANI_TRY(DecoderSpec spec, read_hybrid(config, "qwen3_next", common, loader));
  GALVANI_TRY_VOID(add_experts(config, common, activation, spec));
  GALVANI_TRY_VOID(config.finish());
  return load_decoder(std::move(spec), loader);
}

}  // namespace galvani::models
