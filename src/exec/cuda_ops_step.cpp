// A decode step of one row as one kernel: calls of the model that become phases of kernels/step.
//
// The first step of one row is only looked at: every call is asked whether it could be a phase, and nothing runs. If
// all calls inside layers can, steps of one row write them down from then on, and launch them in one kernel where
// something else has to be launched (a head of another width, the logits' cap) and at the end.
#include "core/log.h"
#include "exec/cuda_ops_impl.h"

namespace galvani::exec {

using kernels::StoreType;

Status CudaOps::prepare_one_kernel() {
  if (choice_.step == StepArm::kLaunches) return {};
  if (kernels::step_kernel_name(4, options_.arithmetic) == nullptr || !device_->caps().has(Feature::kBulkCopy)) {
    if (choice_.step == StepArm::kOneKernel)
      return fail(ErrorCode::kUnsupported,
                  "--arm step=one-kernel cannot run here: {} has no bulk copies into shared memory (from 9.0 on)",
                  device_->name());
    return {};
  }
  OneKernel one{.program = {device_->caps(), options_.arithmetic},
                .launched = {},
                .taken = {},
                .phases = {},
                .counters = {},
                .scratch = {},
                .qkv = {}};
  constexpr size_t kCounters = kernels::kStepMostKvHeads;
  GALVANI_TRY(one.counters, cuda::DeviceBuffer::allocate(*device_, kCounters * sizeof(unsigned), "step counters"));
  GALVANI_TRY_VOID(stream_.fill(one.counters.data(), 0, one.counters.size()));
  one_kernel_.emplace(std::move(one));
  return {};
}

// What a step that was given up has left: of any step, or the next prompt would launch its phases.
void CudaOps::drop_phases() {
  looked_ = false;
  if (!one_kernel_) return;
  one_kernel_->program.clear();
  one_kernel_->qkv.reset();
  one_kernel_->asked = 0;
}

void CudaOps::begin_one_kernel() {
  if (!one_kernel_ || !stepping() || mode_ == StepMode::kReplay) return;
  OneKernel& one = *one_kernel_;
  one.launched.clear();
  one.taken.clear();
}

void CudaOps::step_cannot(const char* reason) {
  if (stepping()) step_takes([&](kernels::StepProgram&) { return reason; });
}

bool CudaOps::step_product(const Act& x, const std::optional<Norm>& norm, LinearRef w, kernels::StepProduct product) {
  const CudaLinear& linear = linear_of(w);
  return step_takes([&](kernels::StepProgram& program) -> const char* {
    if (!linear.segments[0].packed) return "weights that are not quantized";
    if (linear.segments.size() != 1) return "matrices of several formats side by side";
    if (type_of(x) != (norm ? StoreType::kF32 : act_type_)) return "an activation of another type";
    product.x = x.data;
    product.input = norm ? kernels::StepInput::kNormed : kernels::StepInput::kHalf;
    if (norm) product.norm_w = weights(norm->weight), product.eps = norm->eps, product.plus_one = norm->plus_one;
    return program.product(*linear.segments[0].packed, product);
  });
}

bool CudaOps::step_add(const Act& y, LinearRef w, const std::optional<Norm>& post_norm, const Act& residual) {
  if (!stepping()) return false;
  if (post_norm) return step_cannot("a norm of what is added to the residual"), false;
  if (linear_of(w).bias_data() != nullptr) return step_cannot("a bias of what is added to the residual"), false;
  return step_product(y, std::nullopt, w, {.y = residual.data, .output = kernels::StepOutput::kAdd});
}

bool CudaOps::step_gated(const Act& x, const std::optional<Norm>& norm, LinearRef gate_up, kernels::Gate kind,
                         const GatedActivation& activation, Act& out) {
  if (!stepping()) return false;
  out = make(x.rows, linear_of(gate_up).rows / 2, act_type_);
  if (linear_of(gate_up).bias_data() != nullptr) return step_cannot("a bias of gate and up"), false;
  return step_product(x, norm, gate_up,
                      {.y = out.data,
                       .output = kernels::StepOutput::kGated,
                       .gate = kind,
                       .alpha = activation.alpha,
                       .limit = activation.limit});
}

/// Queries, keys and values; attention() follows with the phase that finishes them.
bool CudaOps::step_qkv(const Act& x, const std::optional<Norm>& norm, const AttentionLayer& layer, const Act& qkv) {
  OneKernel& one = *one_kernel_;
  if (layer.rope) rope_table(layer.rope);  // launched before any phase is
  if (layer.output_gate) return step_cannot("attention with an output gate"), false;
  if (layer.norm_whole) return step_cannot("norms over all heads at once"), false;
  const kernels::QkvArgs args = qkv_args(qkv, {}, layer);
  const bool taken = step_product(x, norm, layer.qkv, {.y = qkv.data, .output = kernels::StepOutput::kStore});
  if (mode_ == StepMode::kLook)
    step_takes([&](kernels::StepProgram& program) {
      return program.attention({.qkv = args, .score = {layer.scale, layer.softcap, layer.window}});
    });
  if (taken) one.qkv = args;
  return taken;
}

kernels::StepAttention CudaOps::step_attention(const AttentionLayer& layer, Act& out) {
  OneKernel& one = *one_kernel_;
  const int64_t parts = one.program.part_floats(layer.heads, layer.kv_heads, layer.v_dim);
  kernels::StepAttention phase{
      .qkv = *one.qkv,
      .score = {layer.scale, layer.softcap, layer.window},
      .sinks = weights(layer.sinks),
      .part_out = static_cast<float*>(take(*arena_, static_cast<size_t>(parts) * 4)),
      .part_stat = static_cast<float*>(take(*arena_, static_cast<size_t>(parts / layer.v_dim) * 8)),
      .arrived = one.counters.as<unsigned>(),
      .out = out.data};
  one.qkv.reset();
  return phase;
}

void CudaOps::launch_phases() {
  if (!one_kernel_ || mode_ == StepMode::kLook || one_kernel_->program.empty() || !step_status_) return;
  OneKernel& one = *one_kernel_;
  device_->trace_plan([&] { return "decode step of one token: " + one.program.text(); });
  const size_t at = one.launched.size() * sizeof(kernels::StepPhase), bytes = one.program.bytes();
  if (at + bytes > one.phases.size())
    return fail_step(fail(ErrorCode::kInternal, "a step has {} bytes of phases, the one that was looked at had {}",
                          at + bytes, one.phases.size()));
  std::byte* const device = one.phases.as<std::byte>() + at;
  // A capture's go up when it has ended, or every replay would copy them.
  Status done = mode_ == StepMode::kEager ? stream_.to_device(device, one.program.data(), bytes) : Status{};
  if (done) done = one.program.launch(stream_, device);
  if (!done) step_status_ = std::move(done);
  one.launched.insert(one.launched.end(), one.program.data(), one.program.data() + one.program.size());
  one.program.clear();
}

// At the end of a step that was only looked at.
Status CudaOps::end_one_kernel() {
  OneKernel& one = *one_kernel_;
  const char* reason = one.refusal != nullptr ? one.refusal : one.program.refusal();
  if (reason != nullptr) {
    if (choice_.step == StepArm::kOneKernel)
      return fail(ErrorCode::kUnsupported, "--arm step=one-kernel cannot run this model: {}; leave it out", reason);
    log_info("decode steps of one token: a launch an operation, since one kernel cannot: {}", reason);
  } else {
    GALVANI_TRY(one.phases, cuda::DeviceBuffer::allocate(*device_, one.program.bytes(), "phases of a step"));
    GALVANI_TRY(one.scratch, cuda::DeviceBuffer::allocate(*device_, one.program.scratch_bytes(), "scratch of a step"));
    one.program.use(one.scratch.data(), one.scratch.size());
    one.on = true;
    if (choice_.step == StepArm::kAuto)
      one.most_keys = one_kernel_keys_ < 0 ? one.program.most_keys() : one_kernel_keys_;
  }
  one.decided = looked_ = true;  // not after an error: the next step is looked at again
  one.program.clear();
  return {};
}

Status CudaOps::upload_phases() {
  if (!one_kernel_ || one_kernel_->launched.empty()) return {};
  const OneKernel& one = *one_kernel_;
  GALVANI_TRY_VOID(
      stream_.to_device(one.phases.data(), one.launched.data(), one.launched.size() * sizeof(kernels::StepPhase)));
  return stream_.synchronize();
}

}  // namespace galvani::exec
