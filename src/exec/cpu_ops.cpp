#include "exec/cpu_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/error.h"
#include "device/cpu_caps.h"
#include "exec/activation_counter.h"
#include "exec/cpu_ops_impl.h"
#include "kernels/elementwise/elementwise.h"

namespace galvani::exec {
namespace {

using kernels::QmatmulArm;

std::optional<kernels::AttentionArm> attention_arm_from_name(const std::string& name) {
  using kernels::AttentionArm;
  if (name == "auto") return AttentionArm::kAuto;
  if (name == "ref") return AttentionArm::kRef;
  if (name == "tiles") return AttentionArm::kTiles;
  if (name == "split") return AttentionArm::kSplit;
  return std::nullopt;
}

}  // namespace

Status CpuOps::parse_arms() {
  // Under batch invariance one arm serves every number of rows; the few-token arm is the one that exists everywhere.
  if (options_.batch_invariant) {
    matmul_arm_ = QmatmulArm::kRows;
    delta_arm_ = kernels::GatedDeltaArm::kRecurrent;
  }
  for (const auto& [op, arm] : options_.arms) {
    if (op == "qmatmul") {
      const auto found = kernels::qmatmul_arm_from_name(arm);
      if (!found)
        return fail(ErrorCode::kInvalidArgument,
                    "--arm qmatmul={}: the CPU has no such arm, but: auto, ref, rows, panel", arm);
      matmul_arm_ = *found;
    } else if (op == "attention") {
      const auto found = attention_arm_from_name(arm);
      if (!found)
        return fail(ErrorCode::kInvalidArgument,
                    "--arm attention={}: the CPU has no such arm, but: auto, ref, tiles, split", arm);
      attention_arm_ = *found;
    } else if (op == "gated_delta") {
      const auto found = kernels::gated_delta_arm_from_name(arm);
      if (!found)
        return fail(
            ErrorCode::kInvalidArgument,
            "--arm gated_delta={}: the CPU has no such arm, but: auto, ref, recurrent, chunk16, chunk32, chunk64", arm);
      delta_arm_ = *found;
    } else {
      return fail(ErrorCode::kInvalidArgument,
                  "--arm {}={}: the CPU has no such operation, but: qmatmul, attention, gated_delta", op, arm);
    }
  }
  return {};
}

Result<CpuOps::Linear> CpuOps::pack_linear(const std::string& name, std::span<const LinearPart> parts) {
  Linear linear{.name = name};
  bool any_bias = false;
  for (const LinearPart& part : parts) any_bias |= !part.bias.empty();
  for (const LinearPart& part : parts) {
    if (linear.cols == 0) linear.cols = part.matrix->cols();
    GALVANI_CHECK(part.matrix->cols() == linear.cols, "{}: parts of one product must read the same input", name);
    GALVANI_CHECK(part.bias.empty() || static_cast<int64_t>(part.bias.size()) == part.matrix->rows(), "{}: bias", name);
    GALVANI_TRY(auto packed, kernels::qmatmul_pack(*part.matrix, 0, part.matrix->rows()));
    linear.bytes += packed->packed_bytes;
    linear.rows += packed->rows;
    linear.segments.push_back(packed.get());
    linear.parts.push_back(std::move(packed));
    if (any_bias) {
      if (part.bias.empty())
        linear.bias.resize(static_cast<size_t>(linear.rows), 0.0f);
      else
        linear.bias.insert(linear.bias.end(), part.bias.begin(), part.bias.end());
    }
  }
  return linear;
}

Result<LinearRef> CpuOps::load_linear(const std::string& name, std::span<const LinearPart> parts) {
  GALVANI_TRY(Linear linear, pack_linear(name, parts));
  weight_bytes_ += linear.bytes;
  step_bytes_ += linear.bytes;
  linears_.push_back(std::move(linear));
  const Linear& stored = linears_.back();
  return LinearRef{static_cast<int>(linears_.size()) - 1, stored.rows, stored.cols};
}

Result<StackRef> CpuOps::load_stack(const std::string& name, std::span<const std::vector<LinearPart>> items,
                                    int active) {
  GALVANI_CHECK(!items.empty(), "{}: an empty stack", name);
  Stack stack{.name = name};
  int64_t bytes = 0;
  for (const std::vector<LinearPart>& parts : items) {
    GALVANI_TRY(Linear linear, pack_linear(name, parts));
    GALVANI_CHECK(
        stack.items.empty() || (linear.rows == stack.items.front().rows && linear.cols == stack.items.front().cols),
        "{}: matrices of one stack must have one shape", name);
    weight_bytes_ += linear.bytes;
    bytes += linear.bytes;
    stack.items.push_back(std::move(linear));
  }
  step_bytes_ += bytes / static_cast<int64_t>(items.size()) * active;
  stacks_.push_back(std::move(stack));
  const Stack& stored = stacks_.back();
  return StackRef{static_cast<int>(stacks_.size()) - 1, static_cast<int>(stored.items.size()),
                  stored.items.front().rows, stored.items.front().cols};
}

Result<EmbeddingRef> CpuOps::load_embedding(const quant::MatrixPtr& table) {
  tables_.push_back(table);
  return EmbeddingRef{static_cast<int>(tables_.size()) - 1, table->rows(), table->cols()};
}

Result<VectorRef> CpuOps::load_vector(std::span<const float> values) {
  vectors_.emplace_back(values.begin(), values.end());
  step_bytes_ += static_cast<int64_t>(values.size_bytes());
  weight_bytes_ += static_cast<int64_t>(values.size_bytes());
  return VectorRef{static_cast<int>(vectors_.size()) - 1, static_cast<int64_t>(values.size())};
}

Result<RopeRef> CpuOps::load_rope(const RopeSpec& rope) {
  ropes_.push_back(Rope{.spec = rope});
  return RopeRef{static_cast<int>(ropes_.size()) - 1};
}

void CpuOps::begin_step(const Batch& batch, State& state) {
  arena_.reset();
  batch_ = &batch;
  state_ = &state;
  status_ = {};
  layer_ = -1;
  for (Rope& rope : ropes_) rope.fresh = false;
  taps_.clear();
}

Act CpuOps::make(int64_t rows, int64_t cols) {
  Act act{arena_.allocate(static_cast<size_t>(rows * cols) * sizeof(float)), rows, cols, cols};
  if (options_.poison) std::fill_n(floats(act), rows * cols, std::numeric_limits<float>::quiet_NaN());
  return act;
}

Act CpuOps::zeros(int64_t rows, int64_t cols) {
  Act act = make(rows, cols);
  std::fill_n(floats(act), rows * cols, 0.0f);
  return act;
}

Act CpuOps::normed(const Act& x, const std::optional<Norm>& norm) {
  if (!norm) return x;
  Act y = make(x.rows, x.cols);
  kernels::rms_norm(floats(x), x.rows, x.cols, x.stride, weights(norm->weight), params(*norm), floats(y), y.stride);
  return y;
}

void CpuOps::count(const Act& x) {
  const auto index = static_cast<size_t>(layer_ + 1);
  if (counters_.size() <= index) counters_.resize(index + 1);
  count_activation(floats(x), x.rows, x.cols, x.stride, options_.arithmetic, counters_[index]);
}

void CpuOps::multiply_into(const Act& x, const Linear& linear, kernels::Arithmetic arithmetic, Act& y) {
  GALVANI_CHECK(x.cols == linear.cols && y.cols == linear.rows, "{}: input has {} columns, the matrix is [{}, {}]",
                linear.name, x.cols, linear.rows, linear.cols);
  input_.prepare(floats(x), x.rows, x.cols, x.stride, arithmetic);
  kernels::qmatmul_multi(linear.segments, input_, floats(y), y.stride, matmul_arm_);
  if (!linear.bias.empty()) kernels::add_bias(floats(y), y.rows, y.cols, y.stride, linear.bias.data());
  const auto plan = kernels::qmatmul_plan_for(*linear.segments.front(), x.rows, arithmetic, matmul_arm_);
  ++matmul_runs_[static_cast<size_t>(plan.variant)];
}

Act CpuOps::multiply(const Act& x, LinearRef ref) {
  const Linear& linear = linears_[static_cast<size_t>(ref.id)];
  if (options_.count_activations) count(x);
  Act y = make(x.rows, linear.rows);
  multiply_into(x, linear, options_.arithmetic, y);
  return y;
}

Act CpuOps::embed(EmbeddingRef ref, float scale) {
  const quant::MatrixSource& table = *tables_[static_cast<size_t>(ref.id)];
  Act x = make(batch_->rows(), ref.cols);
  for (int64_t r = 0; r < x.rows; ++r) {
    const int32_t token = batch_->tokens[static_cast<size_t>(r)];
    if (token < 0 || token >= ref.rows) {
      status_ = fail(ErrorCode::kOutOfRange, "token id {} is outside the vocabulary of {} entries", token, ref.rows);
      std::fill_n(floats(x), x.rows * x.cols, 0.0f);
      return x;
    }
    if (auto done = table.dequant_rows(token, token + 1, floats(x) + r * x.stride); !done) {
      status_ = done;
      std::fill_n(floats(x), x.rows * x.cols, 0.0f);
      return x;
    }
  }
  if (scale != 1.0f) kernels::scale(floats(x), x.rows * x.cols, scale);
  return x;
}

Act CpuOps::linear(const Act& x, const std::optional<Norm>& norm, LinearRef w) { return multiply(normed(x, norm), w); }

void CpuOps::activate_into(const float* gate, const float* up, int64_t rows, int64_t cols, int64_t gate_stride,
                           int64_t up_stride, const GatedActivation& activation, Act& out) {
  switch (activation.kind) {
    case Activation::kSilu:
      kernels::swiglu(gate, up, rows, cols, gate_stride, up_stride, floats(out), out.stride);
      return;
    case Activation::kGeluTanh:
      kernels::geglu_tanh(gate, up, rows, cols, gate_stride, up_stride, floats(out), out.stride);
      return;
    case Activation::kSwigluClamped:
      kernels::swiglu_clamped(gate, up, rows, cols, gate_stride, up_stride, activation.alpha, activation.limit,
                              floats(out), out.stride);
      return;
  }
}

Act CpuOps::activate(const Act& gate, const Act& up, const GatedActivation& activation) {
  GALVANI_CHECK(gate.rows == up.rows && gate.cols == up.cols, "gate is [{}, {}], up [{}, {}]", gate.rows, gate.cols,
                up.rows, up.cols);
  Act out = make(gate.rows, gate.cols);
  activate_into(floats(gate), floats(up), gate.rows, gate.cols, gate.stride, up.stride, activation, out);
  return out;
}

Act CpuOps::gated_mlp(const Act& x, const std::optional<Norm>& norm, LinearRef gate_up,
                      const GatedActivation& activation) {
  const Act both = linear(x, norm, gate_up);
  const int64_t inner = both.cols / 2;
  return activate({floats(both), both.rows, inner, both.stride}, {floats(both) + inner, both.rows, inner, both.stride},
                  activation);
}

void CpuOps::add(const Act& y, const std::optional<Norm>& post_norm, Act& residual) {
  GALVANI_CHECK(y.rows == residual.rows && y.cols == residual.cols, "adding [{}, {}] to [{}, {}]", y.rows, y.cols,
                residual.rows, residual.cols);
  if (post_norm) {
    kernels::rms_norm_add(floats(y), y.rows, y.cols, y.stride, weights(post_norm->weight), params(*post_norm),
                          floats(residual), residual.stride);
  } else if (y.stride == y.cols && residual.stride == residual.cols) {
    kernels::add(floats(residual), floats(y), y.rows * y.cols);
  } else {
    for (int64_t r = 0; r < y.rows; ++r)
      kernels::add(floats(residual) + r * residual.stride, floats(y) + r * y.stride, y.cols);
  }
}

void CpuOps::linear_add(const Act& y, LinearRef w, const std::optional<Norm>& post_norm, Act& residual) {
  add(multiply(y, w), post_norm, residual);
}

Act CpuOps::norm(const Act& x, const Norm& norm) { return normed(x, norm); }

Act CpuOps::columns(const Act& x, int64_t first, int64_t count) {
  GALVANI_CHECK(first >= 0 && count > 0 && first + count <= x.cols, "columns {} to {} of {}", first, first + count,
                x.cols);
  return {floats(x) + first, x.rows, count, x.stride};
}

void CpuOps::scale(Act& x, float factor) {
  if (x.stride == x.cols) return kernels::scale(floats(x), x.rows * x.cols, factor);
  for (int64_t r = 0; r < x.rows; ++r) kernels::scale(floats(x) + r * x.stride, x.cols, factor);
}

Act CpuOps::logits(const Act& x, const std::optional<Norm>& norm, LinearRef head, float softcap) {
  const auto& rows = batch_->logit_rows;
  Act picked = make(static_cast<int64_t>(rows.size()), x.cols);
  for (size_t i = 0; i < rows.size(); ++i)
    std::memcpy(floats(picked) + static_cast<int64_t>(i) * picked.stride, floats(x) + rows[i] * x.stride,
                static_cast<size_t>(x.cols) * sizeof(float));
  if (batch_->tap_hidden) tap(normed(x, norm));
  Act z = multiply(normed(picked, norm), head);
  if (softcap > 0) kernels::softcap(floats(z), z.rows * z.cols, softcap);
  return z;
}

void CpuOps::tap(const Act& x) {
  if (!batch_->tap_hidden) return;
  std::vector<float> copy(static_cast<size_t>(x.rows * x.cols));
  (void)read(x, copy.data());
  taps_.push_back(std::move(copy));
}

std::vector<std::pair<std::string, uint64_t>> CpuOps::kernels_run() const {
  std::vector<std::pair<std::string, uint64_t>> runs;
  for (size_t i = 0; i < matmul_runs_.size(); ++i) {
    if (matmul_runs_[i] > 0)
      runs.emplace_back(
          std::string("qmatmul.") + kernels::qmatmul_variant_name(static_cast<kernels::QmatmulVariant>(i)),
          matmul_runs_[i]);
  }
  if (attention_runs_ > 0) runs.emplace_back("attention", attention_runs_);
  for (size_t i = 0; i < delta_runs_.size(); ++i) {
    if (delta_runs_[i] > 0)
      runs.emplace_back(
          std::string("gated_delta.") + kernels::gated_delta_arm_name(static_cast<kernels::GatedDeltaArm>(i)),
          delta_runs_[i]);
  }
  return runs;
}

Result<std::vector<kernels::SampledToken>> CpuOps::sample(const Act& logits,
                                                          std::span<const kernels::RowSampling> rows) {
  return kernels::sample(floats(logits), logits.rows, logits.cols, logits.stride, rows);
}

Status CpuOps::read(const Act& act, float* out) {
  for (int64_t r = 0; r < act.rows; ++r)
    std::memcpy(out + r * act.cols, floats(act) + r * act.stride, static_cast<size_t>(act.cols) * sizeof(float));
  return {};
}

kernels::Arithmetic cpu_default_arithmetic() {
  return cpu_caps().avx512_bf16 ? kernels::Arithmetic::kBF16 : kernels::Arithmetic::kF32;
}

Result<std::unique_ptr<Ops>> create_cpu_ops(const OpsOptions& options) {
  auto ops = std::make_unique<CpuOps>(options);
  GALVANI_TRY_VOID(ops->parse_arms());
  return std::unique_ptr<Ops>(std::move(ops));
}

}  // namespace galvani::exec
