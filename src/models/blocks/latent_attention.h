#pragma once
/// Multi-head latent attention (models.md 3.11): keys and values are products of one small latent per token, which is
/// all that the pages keep, beside a rotated key part that the heads share.
#include <optional>
#include <string>

#include "models/blocks/loader.h"

namespace galvani::models {

struct LatentAttentionSpec {
  int heads = 0;
  int64_t hidden = 0;
  int64_t q_lora = 0;  ///< width between the two factors of q; 0: one matrix
  int64_t latent = 0;  ///< kv_lora_rank
  int64_t nope = 0, rope_dim = 0, v_dim = 0;
  bool bias = false;  ///< of q_a_proj, kv_a_proj_with_mqa and o_proj
  exec::RopeRef rope;
  float scale = 0;
  int kv_group = 0, kv_index = 0;
};

class LatentAttention {
 public:
  /// Tensors `prefix`.q_proj, or .q_a_proj, .q_a_layernorm and .q_b_proj; .kv_a_proj_with_mqa, .kv_a_layernorm,
  /// .o_proj; and .kv_b_proj [heads·(nope + v_dim), latent], or mlx-lm's two halves of it, .embed_q [heads, latent,
  /// nope] and .unembed_out [heads, v_dim, latent]. The key half of kv_b_proj is needed transposed: it is kept dense,
  /// its values exact (quant/transpose.h).
  static Result<LatentAttention> load(Loader& loader, const std::string& prefix, const LatentAttentionSpec& spec);

  /// residual += post_norm( o( attn(norm(residual)) ) )
  void forward(exec::Ops& ops, const std::optional<exec::Norm>& norm, const std::optional<exec::Norm>& post_norm,
               exec::Act& residual) const;

 private:
  exec::LatentAttentionLayer layer_;
  exec::LinearRef out_;
};

}  // namespace galvani::models
