// Multi-head latent attention of CpuOps, in the absorbed form: instead of a key and a value per head and token, each
// query is taken into the latent space (q · W_UK) and attends there, over the latents that the pages hold; what comes
// out is taken to the head's values (W_UV). The same numbers as with keys and values written out:
// q · (W_UK c) = (W_UKᵀ q) · c, and Σ p (W_UV c) = W_UV Σ p c.
#include <cstring>

#include "core/error.h"
#include "exec/cpu_ops_impl.h"

namespace galvani::exec {

void CpuOps::multiply_heads(StackRef ref, const Act& x, int64_t x_step, Act& y, int64_t y_step) {
  const Stack& stack = stacks_[static_cast<size_t>(ref.id)];
  const int64_t heads = ref.count, rows = x.rows;
  GALVANI_CHECK(x.stride == heads * x_step && ref.cols <= x_step && y.stride == heads * y_step && ref.rows <= y_step,
                "{}: {} matrices [{}, {}], rows of {} and {} elements", stack.name, heads, ref.rows, ref.cols, x.stride,
                y.stride);
  // One input of heads · rows rows, head after head; all heads in one parallel region.
  head_rows_.clear();
  group_items_.clear();
  for (int64_t h = 0; h < heads; ++h) {
    for (int64_t r = 0; r < rows; ++r) head_rows_.push_back(static_cast<int32_t>(r * heads + h));
    const Linear& head = stack.items[static_cast<size_t>(h)];
    group_items_.push_back({.segments = head.segments, .x_row = h * rows, .m = rows, .y_column = h * y_step});
    const auto plan = kernels::qmatmul_plan_for(*head.segments.front(), rows, options_.arithmetic, matmul_arm_);
    ++matmul_runs_[static_cast<size_t>(plan.variant)];
    if (options_.count_activations) count({floats(x) + h * x_step, rows, ref.cols, x.stride});
  }
  input_.prepare_rows(floats(x), head_rows_, ref.cols, x_step, options_.arithmetic);
  kernels::qmatmul_grouped(group_items_, input_, floats(y), y.stride, matmul_arm_);
}

Act CpuOps::latent_attention(const Act& x, const std::optional<Norm>& norm, const LatentAttentionLayer& layer) {
  const int64_t rows = x.rows, heads = layer.heads, latent = layer.latent, rope_dim = layer.rope_dim;
  const int64_t q_dim = layer.nope + rope_dim, k_dim = latent + rope_dim;
  const Act in = normed(x, norm);
  Act q = multiply(in, layer.q);
  if (layer.q_norm) q = linear(q, layer.q_norm, layer.q_b);
  const Act kv = multiply(in, layer.kv_a);
  GALVANI_CHECK(q.cols == heads * q_dim && kv.cols == k_dim, "latent attention: q has {} columns, kv {}; {} and {} fit",
                q.cols, kv.cols, heads * q_dim, k_dim);
  GALVANI_CHECK(layer.k_up.count == heads && layer.k_up.cols == layer.nope && layer.k_up.rows == latent &&
                    layer.v_up.count == heads && layer.v_up.cols == latent && layer.v_up.rows == layer.v_dim,
                "latent attention: {} key matrices [{}, {}], {} value matrices [{}, {}]", layer.k_up.count,
                layer.k_up.rows, layer.k_up.cols, layer.v_up.count, layer.v_up.rows, layer.v_up.cols);

  kernels::rms_norm(floats(kv), rows, latent, kv.stride, weights(layer.kv_norm.weight), params(layer.kv_norm),
                    floats(kv), kv.stride);
  rotate(layer.rope, floats(kv) + latent, rows, 1, rope_dim, kv.stride);
  rotate(layer.rope, floats(q) + layer.nope, rows, heads, q_dim, q.stride);

  kernels::KvLayer pages = state_->kv_layer(layer.kv_group, layer.kv_index);
  pages.v_in_k = true;
  pages.v_dim = layer.latent;
  const auto step_chunks = chunks(layer.kv_group);
  kernels::kv_append(pages, step_chunks, floats(kv), kv.stride, nullptr, 0);

  Act absorbed = make(rows, heads * k_dim);
  multiply_heads(layer.k_up, q, q_dim, absorbed, k_dim);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < heads; ++h)
      std::memcpy(floats(absorbed) + r * absorbed.stride + h * k_dim + latent,
                  floats(q) + r * q.stride + h * q_dim + layer.nope, static_cast<size_t>(rope_dim) * sizeof(float));
  }

  const Act mixed = make(rows, heads * latent);
  kernels::attention(pages, {.heads = layer.heads, .scale = layer.scale}, step_chunks, floats(absorbed),
                     absorbed.stride, floats(mixed), mixed.stride, attention_arm_);
  ++attention_runs_;
  Act out = make(rows, heads * layer.v_dim);
  multiply_heads(layer.v_up, mixed, latent, out, layer.v_dim);
  return out;
}

}  // namespace galvani::exec
