// Experts of CpuOps: router, tokens grouped by expert, one grouped product each way, weighed sum.
#include "core/error.h"
#include "exec/cpu_ops_impl.h"
#include "exec/router.h"
#include "kernels/elementwise/elementwise.h"

namespace galvani::exec {
Status CpuOps::route(const Act& x, const Act& in, const Router& router) {
  const Act router_in = normed(router.reads_residual ? x : in, router.norm);
  const Linear& gate = linears_[static_cast<size_t>(router.gate.id)];
  Act logits = make(x.rows, router.experts);
  multiply_into(router_in, gate, kernels::Arithmetic::kF32, logits);  // whatever the run's arithmetic
  const auto places = static_cast<size_t>(x.rows * router.top_k);
  expert_ids_.resize(places);
  expert_weights_.resize(places);
  if (auto routed = kernels::route(floats(logits), logits.rows, logits.stride,
                                   route_params(router, weights(router.selection_bias), weights(router.expert_scale)),
                                   expert_ids_.data(), expert_weights_.data());
      !routed)
    return routed;
  expert_groups_.build(expert_ids_.data(), x.rows, router.top_k, router.experts);
  if (layer_ >= 0) {
    const auto layer = static_cast<size_t>(layer_);
    if (expert_counts_.size() <= layer) expert_counts_.resize(layer + 1);
    auto& counts = expert_counts_[layer];
    counts.resize(static_cast<size_t>(router.experts));
    for (const auto& group : expert_groups_.groups)
      counts[static_cast<size_t>(group.expert)] += static_cast<uint64_t>(group.count);
  }
  return {};
}

void CpuOps::multiply_experts(const Act& x, StackRef ref, bool gather, Act& y) {
  const Stack& stack = stacks_[static_cast<size_t>(ref.id)];
  GALVANI_CHECK(x.cols == ref.cols && y.cols == ref.rows, "{}: input has {} columns, the matrices are [{}, {}]",
                stack.name, x.cols, ref.rows, ref.cols);
  // A single token is the same row for all its experts.
  const bool one_row = gather && x.rows == 1;
  if (gather && !one_row)
    input_.prepare_rows(floats(x), expert_groups_.tokens, x.cols, x.stride, options_.arithmetic);
  else
    input_.prepare(floats(x), x.rows, x.cols, x.stride, options_.arithmetic);
  group_items_.clear();
  for (const auto& group : expert_groups_.groups) {
    const Linear& expert = stack.items[static_cast<size_t>(group.expert)];
    group_items_.push_back(
        {.segments = expert.segments, .x_row = one_row ? 0 : group.first, .y_row = group.first, .m = group.count});
    const auto plan =
        kernels::qmatmul_plan_for(*expert.segments.front(), group.count, options_.arithmetic, matmul_arm_);
    ++matmul_runs_[static_cast<size_t>(plan.variant)];
  }
  kernels::qmatmul_grouped(group_items_, input_, floats(y), y.stride, matmul_arm_);
  for (const auto& group : expert_groups_.groups) {
    const auto& bias = stack.items[static_cast<size_t>(group.expert)].bias;
    if (!bias.empty())
      kernels::add_bias(floats(y) + group.first * y.stride, group.count, y.cols, y.stride, bias.data());
  }
}

void CpuOps::add_shared_expert(const Act& in, const MoeLayer& layer, Act& y) {
  if (!layer.shared_down) return;
  const Act inner = gated_mlp(in, std::nullopt, layer.shared_gate_up, layer.activation);
  const Act shared = multiply(inner, layer.shared_down);
  Act gate;
  if (layer.shared_gate) gate = multiply(in, layer.shared_gate);
  kernels::add_shared_expert(floats(shared), shared.stride, layer.shared_gate ? floats(gate) : nullptr, gate.stride,
                             y.rows, y.cols, floats(y), y.stride);
}

Act CpuOps::moe(const Act& x, const std::optional<Norm>& norm, const MoeLayer& layer) {
  Act y = make(x.rows, layer.down.rows);
  if (!status_) return zeros(x.rows, layer.down.rows);
  const Act in = normed(x, norm);
  if (auto routed = route(x, in, layer.router); !routed) {
    fail_step(wrap(std::move(routed).error(), fmt::format("layer {}", layer_)));
    return zeros(x.rows, layer.down.rows);
  }
  const auto places = static_cast<int64_t>(expert_ids_.size());
  const int64_t inner = layer.down.cols;
  if (options_.count_activations) count(in);
  Act both = make(places, layer.gate_up.rows);
  multiply_experts(in, layer.gate_up, true, both);
  Act active = make(places, inner);
  activate_into(floats(both), floats(both) + inner, places, inner, both.stride, both.stride, layer.activation, active);
  if (options_.count_activations) count(active);
  Act parts = make(places, layer.down.rows);
  multiply_experts(active, layer.down, false, parts);
  kernels::combine_experts(floats(parts), parts.stride, expert_groups_.places.data(), expert_weights_.data(), x.rows,
                           layer.router.top_k, y.cols, floats(y), y.stride);
  add_shared_expert(in, layer, y);
  return y;
}

}  // namespace galvani::exec
