#pragma once
/// Which kernel a GPU would run for a recorded call: each operation's own pure plan function, asked for a part that
/// need not be here. The same functions decide at load whether a GPU can run a model at all.
#include <span>
#include <string>

#include "core/dtype.h"
#include "device/device_caps.h"
#include "exec/recording_ops.h"
#include "kernels/attention/attention_cuda_plan.h"

namespace galvani::exec {

/// A decode step of one token: a launch an operation, replayed as a graph, or one kernel (kernels/step). kAuto: one
/// kernel where every layer can be part of it and no other arm is named.
enum class StepArm { kAuto, kLaunches, kOneKernel };

/// What of a run's options decides which kernels it takes.
struct GpuChoice {
  kernels::Arithmetic arithmetic = kernels::Arithmetic::kBF16;
  DType kv = DType::kBF16;
  int forced_matmul = -1;  ///< a QmatmulCudaArm
  bool arm_named = false;  ///< by --arm qmatmul, not by batch invariance
  bool batch_invariant = false;
  kernels::AttentionCudaArm attention = kernels::AttentionCudaArm::kAuto;
  StepArm step = StepArm::kAuto;
  bool rows_only = false;                                ///< chunks are run row by row too: one arm whatever the batch
  int64_t expand_bytes = OpsOptions().expand_mib << 20;  ///< the largest matrix that the expand arm may hold
};

/// `--act auto` on such a part.
constexpr kernels::Arithmetic gpu_arithmetic(const DeviceCaps& caps) {
  return caps.has(Feature::kBf16) ? kernels::Arithmetic::kBF16 : kernels::Arithmetic::kF16;
}

/// From a run's options; `name` is the part's, for messages. Errors: an arithmetic that the part does not multiply
/// (kUnsupported), an unknown arm (kInvalidArgument), with what is allowed.
Result<GpuChoice> gpu_choice(const DeviceCaps& caps, const std::string& name, const OpsOptions& options, DType kv);

/// One line: the kernel and what was decided, or "refused: " and every arm's reason.
std::string cuda_call_plan(const DeviceCaps& caps, const RecordingOps::Call& call, const GpuChoice& choice);

/// Why the part runs no kernel for this call, forced arms included; empty: it does. A product of several parts has a
/// kernel for each stretch of equal formats, and each must have one.
std::string cuda_call_refusal(const DeviceCaps& caps, const RecordingOps::Call& call, const GpuChoice& choice);

/// How a decode step of one token runs: "kernel=decode_step_… 161 phases, …", or "a launch an operation: " and why one
/// kernel cannot. `recorded`: a pass of one row.
std::string cuda_step_plan(const DeviceCaps& caps, const RecordingOps& recorded, const GpuChoice& choice);

/// kUnsupported when --arm step=one-kernel was given and a step of this model, or this run, cannot be one kernel.
Status check_gpu_step(const DeviceCaps& caps, const RecordingOps& recorded, const GpuChoice& choice);

/// Bytes that products of these calls hold on the part beside weights and activations: the expand arm's matrix where a
/// plan takes it, cuBLASLt's workspace, partial sums. CudaOps allocates the same.
int64_t gpu_workspace_bytes(const DeviceCaps& caps, std::span<const RecordingOps::Call> calls, const GpuChoice& choice);

/// The first call that the part refuses, as an error for a person: kUnsupported. Also when an arm of qmatmul is forced
/// and no call is a quantized product.
Status check_gpu_calls(const DeviceCaps& caps, std::span<const RecordingOps::Call> calls, const GpuChoice& choice);

}  // namespace galvani::exec
