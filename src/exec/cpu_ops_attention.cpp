// Grouped-query attention of CpuOps: product, clip, norms, rope, append; then attention and the output gate.
#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "exec/cpu_ops_impl.h"
#include "kernels/elementwise/elementwise.h"

namespace galvani::exec {
namespace {

// The columns of a row of qkv, in elements from its start.
struct Columns {
  int64_t q = 0, k = 0, v = 0, gate = 0;          // where each begins
  int64_t q_width = 0, k_width = 0, v_width = 0;  // what the product wrote of each
};

Columns qkv_columns(const AttentionLayer& layer) {
  Columns c;
  c.q_width = int64_t{layer.heads} * layer.k_dim;
  c.k_width = layer.reuse_kv ? 0 : int64_t{layer.kv_heads} * layer.k_dim;
  c.v_width = layer.reuse_kv || layer.v_from_k ? 0 : int64_t{layer.kv_heads} * layer.v_dim;
  c.k = c.q_width;
  c.v = c.k + c.k_width;
  c.gate = c.v + c.v_width;
  return c;
}

}  // namespace

const kernels::RopeTable& CpuOps::rope_table(RopeRef ref) {
  Rope& rope = ropes_[static_cast<size_t>(ref.id)];
  if (!rope.fresh) {
    kernels::rope_build(rope.table, batch_->positions.data(), batch_->rows(), rope.spec.inv_freq.data(),
                        2 * static_cast<int64_t>(rope.spec.inv_freq.size()), rope.spec.attention_scale);
    rope.fresh = true;
  }
  return rope.table;
}

void CpuOps::rotate(RopeRef ref, float* x, int64_t rows, int64_t heads, int64_t head_dim, int64_t stride) {
  if (!ref) return;
  const auto pairing = ropes_[static_cast<size_t>(ref.id)].spec.interleaved ? kernels::RopePairing::kInterleaved
                                                                            : kernels::RopePairing::kHalfSplit;
  kernels::rope_apply(rope_table(ref), pairing, x, 0, rows, heads, head_dim, stride);
}

std::vector<kernels::AttentionChunk> CpuOps::chunks(int group) const {
  std::vector<kernels::AttentionChunk> result;
  result.reserve(batch_->chunks.size());
  for (const Chunk& chunk : batch_->chunks)
    result.push_back({.row = chunk.row,
                      .count = chunk.count,
                      .first_position = chunk.first_position,
                      .blocks = state_->blocks(chunk.sequence, group).data()});
  return result;
}

void CpuOps::head_norm(const std::optional<Norm>& norm, bool whole, float* x, int64_t rows, int64_t heads, int64_t dim,
                       int64_t stride) {
  if (!norm) return;
  if (whole) {
    kernels::rms_norm(x, rows, heads * dim, stride, weights(norm->weight), params(*norm), x, stride);
    return;
  }
  for (int64_t h = 0; h < heads; ++h) {
    float* head = x + h * dim;
    kernels::rms_norm(head, rows, dim, stride, weights(norm->weight), params(*norm), head, stride);
  }
}

AttentionInputs CpuOps::attention_inputs(const Act& x, const std::optional<Norm>& norm, const AttentionLayer& layer) {
  const Act qkv = linear(x, norm, layer.qkv);
  const Columns c = qkv_columns(layer);
  const int64_t gate_width = layer.output_gate ? int64_t{layer.heads} * layer.v_dim : 0;
  GALVANI_CHECK(qkv.cols == c.gate + gate_width, "attention: the product has {} rows, its layer needs {}", qkv.cols,
                c.gate + gate_width);
  float* q = floats(qkv);
  float* k = q + c.k;
  float* v = q + c.v;
  int64_t v_stride = qkv.stride;
  if (layer.v_from_k && !layer.reuse_kv) {  // k itself is normed and rotated below
    const Act copy = make(qkv.rows, c.k_width);
    for (int64_t r = 0; r < qkv.rows; ++r)
      std::memcpy(floats(copy) + r * copy.stride, k + r * qkv.stride, static_cast<size_t>(c.k_width) * sizeof(float));
    v = floats(copy);
    v_stride = copy.stride;
  }
  head_norm(layer.q_norm, layer.norm_whole, q, qkv.rows, layer.heads, layer.k_dim, qkv.stride);
  if (!layer.reuse_kv) {
    head_norm(layer.k_norm, layer.norm_whole, k, qkv.rows, layer.kv_heads, layer.k_dim, qkv.stride);
    head_norm(layer.v_norm, false, v, qkv.rows, layer.kv_heads, layer.v_dim, v_stride);
  }
  if (layer.clip > 0) {
    for (int64_t r = 0; r < qkv.rows; ++r)
      kernels::clamp(q + r * qkv.stride, c.q_width + c.k_width + c.v_width, -layer.clip, layer.clip);
  }
  rotate(layer.rope, q, qkv.rows, layer.heads, layer.k_dim, qkv.stride);
  if (!layer.reuse_kv) {
    rotate(layer.rope, k, qkv.rows, layer.kv_heads, layer.k_dim, qkv.stride);
    kernels::kv_append(state_->kv_layer(layer.kv_group, layer.kv_index), chunks(layer.kv_group), k, qkv.stride, v,
                       v_stride);
  }
  AttentionInputs inputs{.q = {q, qkv.rows, c.q_width, qkv.stride}, .gate = {}};
  if (layer.output_gate) inputs.gate = {q + c.gate, qkv.rows, gate_width, qkv.stride};
  return inputs;
}

Act CpuOps::attention(const AttentionInputs& inputs, const AttentionLayer& layer) {
  const Act& q = inputs.q;
  Act out = make(q.rows, int64_t{layer.heads} * layer.v_dim);
  const kernels::AttentionParams attention_params{.heads = layer.heads,
                                                  .scale = layer.scale,
                                                  .window = layer.window,
                                                  .softcap = layer.softcap,
                                                  .sinks = weights(layer.sinks)};
  kernels::attention(state_->kv_layer(layer.kv_group, layer.kv_index), attention_params, chunks(layer.kv_group),
                     floats(q), q.stride, floats(out), out.stride, attention_arm_);
  ++attention_runs_;
  if (layer.output_gate)
    kernels::sigmoid_mul(floats(inputs.gate), floats(out), out.rows, out.cols, inputs.gate.stride, out.stride,
                         floats(out), out.stride);
  return out;
}

}  // namespace galvani::exec
