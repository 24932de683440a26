#include "models/blocks/latent_attention.h"

#include "core/error.h"
#include "quant/row_select.h"
#include "quant/transpose.h"

namespace galvani::models {
namespace {

using Items = std::vector<std::vector<exec::LinearPart>>;  // one a head

/// The norms inside the block have an eps of their own: the references give them their class's default, whatever
/// rms_norm_eps says.
constexpr float kInnerEps = 1e-6f;

/// Rows [head · step + first, + count) of `matrix` for every head.
Result<Items> head_rows(const quant::MatrixPtr& matrix, int heads, int64_t step, int64_t first, int64_t count) {
  Items items(static_cast<size_t>(heads));
  for (size_t h = 0; h < items.size(); ++h) {
    exec::LinearPart part;
    GALVANI_TRY(part.matrix, quant::select_rows(matrix, {{static_cast<int64_t>(h) * step + first, count}}));
    items[h].push_back(std::move(part));
  }
  return items;
}

/// mlx-lm's conversion: both halves stored as they are multiplied.
Status load_halves(Loader& loader, const std::string& prefix, const LatentAttentionSpec& spec,
                   exec::LatentAttentionLayer& layer) {
  GALVANI_TRY(const auto keys, loader.checkpoint().matrix(prefix + ".embed_q", spec.heads * spec.latent, spec.nope));
  GALVANI_TRY(const auto values,
              loader.checkpoint().matrix(prefix + ".unembed_out", spec.heads * spec.v_dim, spec.latent));
  GALVANI_TRY(const Items k_items, head_rows(keys, spec.heads, spec.latent, 0, spec.latent));
  GALVANI_TRY(const Items v_items, head_rows(values, spec.heads, spec.v_dim, 0, spec.v_dim));
  GALVANI_TRY(layer.k_up, loader.ops().load_stack(prefix + ".embed_q", k_items, spec.heads));
  GALVANI_TRY(layer.v_up, loader.ops().load_stack(prefix + ".unembed_out", v_items, spec.heads));
  return {};
}

Status load_whole(Loader& loader, const std::string& prefix, const LatentAttentionSpec& spec,
                  exec::LatentAttentionLayer& layer) {
  const std::string name = prefix + ".kv_b_proj";
  const int64_t step = spec.nope + spec.v_dim;
  GALVANI_TRY(const auto kv_b, loader.checkpoint().matrix(name, spec.heads * step, spec.latent));
  Items k_items(static_cast<size_t>(spec.heads));
  for (size_t h = 0; h < k_items.size(); ++h) {
    exec::LinearPart part;
    GALVANI_TRY(part.matrix, quant::transpose_values(*kv_b, static_cast<int64_t>(h) * step, spec.nope));
    k_items[h].push_back(std::move(part));
  }
  GALVANI_TRY(const Items v_items, head_rows(kv_b, spec.heads, step, spec.nope, spec.v_dim));
  GALVANI_TRY(layer.k_up, loader.ops().load_stack(name + " (keys)", k_items, spec.heads));
  GALVANI_TRY(layer.v_up, loader.ops().load_stack(name + " (values)", v_items, spec.heads));
  return {};
}

Status load_up(Loader& loader, const std::string& prefix, const LatentAttentionSpec& spec,
               exec::LatentAttentionLayer& layer) {
  const bool whole = loader.checkpoint().has(prefix + ".kv_b_proj.weight");
  const bool halves = loader.checkpoint().has(prefix + ".embed_q.weight");
  if (whole) return load_whole(loader, prefix, spec, layer);
  if (halves) return load_halves(loader, prefix, spec, layer);
  return fail(ErrorCode::kNotFound,
              "{}: {} has neither kv_b_proj nor embed_q and unembed_out; without them the latent cannot become keys "
              "and values",
              loader.checkpoint().path().string(), prefix);
}

}  // namespace

Result<LatentAttention> LatentAttention::load(Loader& loader, const std::string& prefix,
                                              const LatentAttentionSpec& spec) {
  LatentAttention block;
  exec::LatentAttentionLayer& layer = block.layer_;
  const int64_t q_rows = spec.heads * (spec.nope + spec.rope_dim);
  if (spec.q_lora == 0) {
    GALVANI_TRY(layer.q, loader.linear({{prefix + ".q_proj", q_rows}}, spec.hidden));
  } else {
    GALVANI_TRY(layer.q, loader.linear({{prefix + ".q_a_proj", spec.q_lora}}, spec.hidden, spec.bias));
    GALVANI_TRY(layer.q_norm, loader.norm(prefix + ".q_a_layernorm", spec.q_lora, kInnerEps));
    GALVANI_TRY(layer.q_b, loader.linear({{prefix + ".q_b_proj", q_rows}}, spec.q_lora));
  }
  GALVANI_TRY(layer.kv_a,
              loader.linear({{prefix + ".kv_a_proj_with_mqa", spec.latent + spec.rope_dim}}, spec.hidden, spec.bias));
  GALVANI_TRY(layer.kv_norm, loader.norm(prefix + ".kv_a_layernorm", spec.latent, kInnerEps));
  GALVANI_TRY_VOID(load_up(loader, prefix, spec, layer));
  GALVANI_TRY(block.out_, loader.linear({{prefix + ".o_proj", spec.hidden}}, spec.heads * spec.v_dim, spec.bias));
  layer.heads = spec.heads;
  layer.nope = static_cast<int>(spec.nope);
  layer.rope_dim = static_cast<int>(spec.rope_dim);
  layer.latent = static_cast<int>(spec.latent);
  layer.v_dim = static_cast<int>(spec.v_dim);
  layer.rope = spec.rope;
  layer.scale = spec.scale;
  layer.kv_group = spec.kv_group;
  layer.kv_index = spec.kv_index;
  return block;
}

void LatentAttention::forward(exec::Ops& ops, const std::optional<exec::Norm>& norm,
                              const std::optional<exec::Norm>& post_norm, exec::Act& residual) const {
  const exec::Act mixed = ops.latent_attention(residual, norm, layer_);
  ops.linear_add(mixed, out_, post_norm, residual);
}

}  // namespace galvani::models
