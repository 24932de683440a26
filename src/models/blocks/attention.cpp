#include "models/blocks/attention.h"

#include <cmath>

#include "core/error.h"

namespace galvani::models {

Result<Attention> Attention::load(Loader& loader, const std::string& prefix, const AttentionSpec& spec) {
  Attention block;
  const int64_t q_rows = int64_t{spec.heads} * spec.head_dim, kv_rows = int64_t{spec.kv_heads} * spec.head_dim;
  std::vector<MatrixSpec> qkv = {{prefix + ".q_proj", q_rows}};
  if (!spec.reuse_kv) qkv.push_back({prefix + ".k_proj", kv_rows});
  if (!spec.reuse_kv && !spec.v_from_k) qkv.push_back({prefix + ".v_proj", kv_rows});
  GALVANI_TRY(block.layer_.qkv, loader.linear(qkv, spec.hidden, spec.qkv_bias));
  GALVANI_TRY(block.out_, loader.linear({{prefix + ".o_proj", spec.hidden}}, q_rows, spec.out_bias));
  exec::AttentionLayer& layer = block.layer_;
  if (spec.qk_norm) {
    const bool whole = spec.qk_norm_whole;
    GALVANI_TRY(layer.q_norm,
                loader.norm(prefix + ".q_norm", whole ? q_rows : spec.head_dim, spec.eps, spec.qk_norm_zero_centred));
    if (!spec.reuse_kv) {
      GALVANI_TRY(layer.k_norm, loader.norm(prefix + ".k_norm", whole ? kv_rows : spec.head_dim, spec.eps,
                                            spec.qk_norm_zero_centred));
    }
    layer.norm_whole = whole;
  }
  if (spec.v_norm) layer.v_norm = exec::Norm{.weight = {}, .eps = spec.eps};
  layer.v_from_k = spec.v_from_k;
  layer.reuse_kv = spec.reuse_kv;
  if (spec.sinks) {
    const std::string plain = prefix + ".sinks", suffixed = plain + ".weight";  // GGUF gives it a suffix
    GALVANI_TRY(layer.sinks, loader.vector(loader.checkpoint().has(suffixed) ? suffixed : plain, spec.heads));
  }
  layer.clip = spec.clip;
  layer.heads = spec.heads;
  layer.kv_heads = spec.kv_heads;
  layer.k_dim = layer.v_dim = spec.head_dim;
  layer.rope = spec.rope;
  layer.kv_group = spec.kv_group;
  layer.kv_index = spec.kv_index;
  layer.scale = spec.scale > 0 ? spec.scale : 1.0f / std::sqrt(static_cast<float>(spec.head_dim));
  layer.window = spec.window;
  return block;
}

void Attention::forward(exec::Ops& ops, const std::optional<exec::Norm>& norm,
                        const std::optional<exec::Norm>& post_norm, exec::Act& residual) const {
  const exec::AttentionInputs inputs = ops.attention_inputs(residual, norm, layer_);
  const exec::Act mixed = ops.attention(inputs, layer_);
  ops.linear_add(mixed, out_, post_norm, residual);
}

}  // namespace galvani::models
