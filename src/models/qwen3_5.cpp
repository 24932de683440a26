// Qwen3.5, 3.6 and 3.8, dense and with experts (models.md 3.6): gated delta nets with a gated full attention every
// fourth layer.
#include "core/error.h"
#include "models/blocks/hybrid.h"
#include "models/families.h"

namespace galvani::models {

Result<std::unique_ptr<Model>> load_qwen3_5(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress) {
  formats::ConfigReader config(checkpoint.config(), checkpoint.path().string());
  GALVANI_TRY(const CommonConfig common, read_common(config, {.eps = 1e-6}));
  GALVANI_TRY(const exec::Activation activation, read_activation(config, "hidden_act", "silu"));
  Loader loader(checkpoint, ops, common.layers, progress);
  GALVANI_TRY(DecoderSpec spec, read_hybrid(config, "qwen3_5", common, loader));
  GALVANI_TRY_VOID(config.finish());
  for (DecoderLayerSpec& layer : spec.layers) {
    layer.inner = common.inner;
    layer.activation = activation;
  }
  return load_decoder(std::move(spec), loader);
}

Result<std::unique_ptr<Model>> load_qwen3_5_moe(quant::Checkpoint& checkpoint, exec::Ops& ops,
                                                const Progress& progress) {
  // Every layer has experts; an intermediate_size, where there is one, is read by nobody.
  return load_hybrid_moe(checkpoint, ops, progress, "qwen3_5_moe", 1);
}

}  // namespace galvani::models
