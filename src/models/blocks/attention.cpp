#include "models/blocks/attention.h"

#include <cmath>

#include "core/error.h"
#include "quant/row_select.h"

namespace galvani::models {
namespace {

/// One half of every head's rows of a q_proj that holds a gate beside each query.
Result<exec::LinearPart> head_halves(const exec::LinearPart& both, const AttentionSpec& spec, int half) {
  exec::LinearPart part;
  std::vector<quant::RowRun> runs;
  for (int64_t h = 0; h < spec.heads; ++h) {
    const int64_t first = (2 * h + half) * spec.head_dim;
    runs.push_back({.first = first, .count = spec.head_dim});
    if (!both.bias.empty())
      part.bias.insert(part.bias.end(), both.bias.begin() + first, both.bias.begin() + first + spec.head_dim);
  }
  GALVANI_TRY(part.matrix, quant::select_rows(both.matrix, std::move(runs)));
  return part;
}

/// q, k and v as far as the spec has them, then with an output gate the gate.
Result<exec::LinearRef> load_qkv(Loader& loader, const std::string& prefix, const AttentionSpec& spec) {
  const int64_t q_rows = int64_t{spec.heads} * spec.head_dim, kv_rows = int64_t{spec.kv_heads} * spec.head_dim;
  std::vector<exec::LinearPart> parts;
  GALVANI_TRY(exec::LinearPart q,
              loader.part({prefix + ".q_proj", spec.output_gate ? 2 * q_rows : q_rows}, spec.hidden, spec.qkv_bias));
  if (spec.output_gate) {
    GALVANI_TRY(exec::LinearPart queries, head_halves(q, spec, 0));
    parts.push_back(std::move(queries));
  } else {
    parts.push_back(q);
  }
  for (const char* name : {".k_proj", ".v_proj"}) {
    if (spec.reuse_kv || (spec.v_from_k && name[1] == 'v')) continue;
    GALVANI_TRY(exec::LinearPart part, loader.part({prefix + name, kv_rows}, spec.hidden, spec.qkv_bias));
    parts.push_back(std::move(part));
  }
  if (spec.output_gate) {
    GALVANI_TRY(exec::LinearPart gate, head_halves(q, spec, 1));
    parts.push_back(std::move(gate));
  }
  return loader.ops().load_linear(prefix + ".q_proj", parts);
}

}  // namespace

Result<Attention> Attention::load(Loader& loader, const std::string& prefix, const AttentionSpec& spec) {
  Attention block;
  const int64_t q_rows = int64_t{spec.heads} * spec.head_dim, kv_rows = int64_t{spec.kv_heads} * spec.head_dim;
  GALVANI_TRY(block.layer_.qkv, load_qkv(loader, prefix, spec));
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
  layer.output_gate = spec.output_gate;
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
