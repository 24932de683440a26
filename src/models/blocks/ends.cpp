#include "models/blocks/ends.h"

#include <cmath>

#include "core/dtype.h"
#include "core/error.h"

namespace galvani::models {

Result<Ends> Ends::load(Loader& loader, const EndsSpec& spec) {
  Ends ends;
  ends.embed_scale_ = spec.embed_scale;
  ends.softcap_ = spec.softcap;
  GALVANI_TRY(const quant::MatrixPtr table, loader.checkpoint().matrix("model.embed_tokens", spec.vocab, spec.hidden));
  GALVANI_TRY(ends.table_, loader.ops().load_embedding(table));
  GALVANI_TRY(ends.norm_, loader.norm("model.norm", spec.hidden, spec.eps, spec.norm_zero_centred));
  if (spec.tied) {
    const exec::LinearPart part{.matrix = table};
    GALVANI_TRY(ends.head_, loader.ops().load_linear("model.embed_tokens", std::span(&part, 1)));
  } else {
    GALVANI_TRY(ends.head_, loader.linear({{"lm_head", spec.vocab}}, spec.hidden));
  }
  return ends;
}

exec::Act Ends::embed(exec::Ops& ops) const {
  ops.begin_layer(-1);
  exec::Act x = ops.embed(table_, embed_scale_);
  ops.tap(x);
  return x;
}

exec::Act Ends::logits(exec::Ops& ops, const exec::Act& residual) const {
  ops.begin_layer(-1);
  return ops.logits(residual, norm_, head_, softcap_);
}

float gemma_embed_scale(int64_t hidden) { return bf16_to_f32(f32_to_bf16(std::sqrt(static_cast<float>(hidden)))); }

}  // namespace galvani::models
