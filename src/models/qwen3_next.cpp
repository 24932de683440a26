// Qwen3-Next (models.md 3.5): gated delta nets with a gated full attention every fourth layer, experts with a gated
// shared one in all layers but those that the config names.
#include "models/blocks/hybrid.h"
#include "models/families.h"

namespace galvani::models {

Result<std::unique_ptr<Model>> load_qwen3_next(quant::Checkpoint& checkpoint, exec::Ops& ops,
                                               const Progress& progress) {
  return load_hybrid_moe(checkpoint, ops, progress, "qwen3_next", 5632);
}

}  // namespace galvani::models
