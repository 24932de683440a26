#pragma once
/// Grouped-query attention with rope over paged keys and values (models.md 1.3, 1.4).
#include <optional>
#include <string>

#include "models/blocks/loader.h"

namespace galvani::models {

struct AttentionSpec {
  int heads = 0, kv_heads = 0, head_dim = 0;
  int64_t hidden = 0;
  bool qkv_bias = false, out_bias = false;
  bool qk_norm = false;  ///< per-head norms named q_norm, k_norm
  bool qk_norm_zero_centred = false;
  bool qk_norm_whole = false;  ///< those norms run over all heads at once (OLMoE)
  float clip = 0;              ///< q, k and v are clamped to ±clip after the norms (OLMoE); 0 = none
  bool sinks = false;          ///< a learned logit a head, named sinks (gpt-oss)
  bool v_norm = false;         ///< v / rms(v) over each head, without a weight (Gemma 4)
  bool v_from_k = false;       ///< no v_proj: v is k's projection (Gemma 4)
  bool reuse_kv = false;       ///< no k_proj, v_proj, k_norm: reads kv_group/kv_index of another layer (Gemma 4)
  /// q_proj holds each head's gate after its query: [heads, 2 · head_dim] (Qwen3-Next).
  bool output_gate = false;
  float eps = 1e-6f;
  exec::RopeRef rope;
  float scale = 0;  ///< 0: head_dim^-0.5
  int window = 0;
  int kv_group = 0, kv_index = 0;
};

class Attention {
 public:
  /// Tensors `prefix`.{q,k,v,o}_proj (+ .bias), `prefix`.{q,k}_norm, as far as the spec has them.
  static Result<Attention> load(Loader& loader, const std::string& prefix, const AttentionSpec& spec);

  /// residual += post_norm( o( attn(norm(residual)) ) )
  void forward(exec::Ops& ops, const std::optional<exec::Norm>& norm, const std::optional<exec::Norm>& post_norm,
               exec::Act& residual) const;

 private:
  exec::AttentionLayer layer_;
  exec::LinearRef out_;
};

}  // namespace galvani::models
