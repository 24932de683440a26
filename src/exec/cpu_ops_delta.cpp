// The gated delta net of CpuOps: one product for q, k, v, z, b and a, then the kernel on the sequences' slots.
#include <vector>

#include "core/error.h"
#include "exec/cpu_ops_impl.h"

namespace galvani::exec {
namespace {

kernels::GatedDeltaShape shape_of(const GatedDeltaLayer& layer) {
  return {.key_heads = layer.key_heads,
          .value_heads = layer.value_heads,
          .k_dim = layer.k_dim,
          .v_dim = layer.v_dim,
          .kernel = layer.kernel,
          .tiled_heads = layer.tiled_heads};
}

}  // namespace

Act CpuOps::gated_delta(const Act& x, const std::optional<Norm>& norm, const GatedDeltaLayer& layer) {
  const kernels::GatedDeltaShape shape = shape_of(layer);
  // A step that has failed must not move the sequences' state on.
  if (!status_) return zeros(x.rows, shape.values());
  const Act in = linear(x, norm, layer.in);
  GALVANI_CHECK(in.cols == shape.columns(), "gated delta net: the product has {} rows, its layer needs {}", in.cols,
                shape.columns());
  GALVANI_CHECK(layer.conv.size == shape.kernel * shape.channels() && !layer.out_norm.plus_one,
                "gated delta net: {} convolution weights for {} channels", layer.conv.size, shape.channels());
  const kernels::GatedDeltaWeights layer_weights{.conv = weights(layer.conv),
                                                 .a_log = weights(layer.a_log),
                                                 .dt_bias = weights(layer.dt_bias),
                                                 .norm = weights(layer.out_norm.weight),
                                                 .eps = layer.out_norm.eps,
                                                 .sigmoid_gate = layer.sigmoid_gate};
  std::vector<kernels::GatedDeltaSequence> sequences;
  sequences.reserve(batch_->chunks.size());
  for (const Chunk& chunk : batch_->chunks) {
    sequences.push_back({.row = chunk.row,
                         .count = chunk.count,
                         .first_position = chunk.first_position,
                         .conv = reinterpret_cast<float*>(state_->slot(chunk.sequence, layer.conv_slot)),
                         .state = reinterpret_cast<float*>(state_->slot(chunk.sequence, layer.state_slot))});
    ++delta_runs_[static_cast<size_t>(kernels::gated_delta_plan(delta_arm_, chunk.count))];
  }
  Act out = make(in.rows, shape.values());
  const Act scratch = make(1, kernels::gated_delta_scratch(shape, in.rows));
  kernels::gated_delta(shape, layer_weights, sequences, floats(in), in.stride, floats(out), out.stride, floats(scratch),
                       delta_arm_);
  return out;
}

}  // namespace galvani::exec
