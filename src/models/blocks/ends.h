#pragma once
/// The two ends of every decoder: token embedding in, final norm and head out (tied or not).
#include <string>

#include "models/blocks/loader.h"

namespace galvani::models {

struct EndsSpec {
  int64_t vocab = 0, hidden = 0;
  bool tied = false;
  float embed_scale = 1;
  float eps = 1e-6f;
  bool norm_zero_centred = false;
  float softcap = 0;
};

class Ends {
 public:
  /// Tensors model.embed_tokens, model.norm, and lm_head unless tied.
  static Result<Ends> load(Loader& loader, const EndsSpec& spec);
  exec::Act embed(exec::Ops& ops) const;
  exec::Act logits(exec::Ops& ops, const exec::Act& residual) const;

 private:
  exec::EmbeddingRef table_;
  exec::LinearRef head_;
  exec::Norm norm_;
  float embed_scale_ = 1, softcap_ = 0;
};

/// √hidden rounded to bf16, as both reference implementations of Gemma have it (models.md 3.7).
float gemma_embed_scale(int64_t hidden);

}  // namespace galvani::models
