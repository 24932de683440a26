#include "exec/call_plans.h"

#include <algorithm>
#include <optional>

#include "core/error.h"
#include "exec/uploader.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/norm/norm_cuda.h"
#include "kernels/qmatmul/a16_pack.h"
#include "kernels/qmatmul/qmatmul_cuda.h"
#include "kernels/qmatmul/qmatmul_cuda_text.h"
#include "kernels/step/step_cuda.h"

namespace galvani::exec {
namespace {

using Call = RecordingOps::Call;

/// The format that A16 packing gives a matrix of affine or float codes; none for the other kinds.
std::optional<kernels::A16Format> a16_of(const quant::MatrixSource& matrix) {
  const auto format = kernels::qmatmul_cuda_format_of(matrix);
  return format ? std::optional(*format) : std::nullopt;
}

/// Parts of one format are one launch: those from `first` on.
struct Stretch {
  std::optional<kernels::A16Format> format;  // none: multiplied as it is
  int64_t rows = 0;
  size_t end = 0;
};
Stretch stretch_of(const Call& call, size_t first) {
  Stretch stretch{.format = a16_of(*call.parts[first]), .end = first};
  for (; stretch.end < call.parts.size(); ++stretch.end) {
    const auto other = a16_of(*call.parts[stretch.end]);
    if (stretch.format && stretch.rows % kernels::kA16Rows != 0) break;  // row tiles must follow each other
    if (other != stretch.format) break;
    stretch.rows += call.parts[stretch.end]->rows();
  }
  return stretch;
}

kernels::QmatmulCudaProblem problem_of(const Call& call, const Stretch& stretch, const GpuChoice& choice) {
  kernels::QmatmulCudaProblem problem;
  problem.m = call.rows, problem.n = stretch.rows, problem.k = call.in, problem.format = *stretch.format;
  problem.kind = kernels::weight_kind_of(*stretch.format);
  problem.arithmetic = choice.arithmetic;
  problem.x_aligned = call.in % 8 == 0;
  problem.forced = choice.forced_matmul;
  problem.workspace_bytes = choice.expand_bytes;
  return problem;
}

/// As CudaOps: cuBLASLt for weights of the activations' type, else the plain product. cuBLASLt chooses its algorithm by
/// the number of rows, so it has no part in batch invariance.
bool through_blas(const quant::MatrixSource& matrix, const GpuChoice& choice) {
  if (choice.batch_invariant) return false;
  const DType type = choice.arithmetic == kernels::Arithmetic::kBF16 ? DType::kBF16 : DType::kF16;
  return matrix.kind() == quant::MatrixKind::kDense && matrix.dtype() == type;
}

std::string product_plan(const DeviceCaps& caps, const Call& call, const GpuChoice& choice) {
  std::string text;
  const auto add = [&](const std::string& plan) { text += (text.empty() ? "" : "; then ") + plan; };
  for (size_t i = 0; i < call.parts.size();) {
    const Stretch stretch = stretch_of(call, i);
    if (stretch.format) {
      add(kernels::qmatmul_cuda_plan_text(caps, problem_of(call, stretch, choice), kernels::PlanDetail::kReasons));
    } else {
      const quant::MatrixSource& matrix = *call.parts[i];
      const bool blas = through_blas(matrix, choice) && call.in % 8 == 0;
      add(blas ? "cuBLASLt"
               : "kernel=linear_dense_sm70 (no packed form and no cuBLASLt product for " + matrix.format() + ")");
    }
    i = stretch.end;
  }
  return text;
}

std::string product_refusal(const DeviceCaps& caps, const Call& call, const GpuChoice& choice) {
  if (call.normed && call.in > kernels::norm_most_dim(caps))
    return fmt::format("the norm before it has rows of {} elements, and a block of this part holds at most {}", call.in,
                       kernels::norm_most_dim(caps));
  for (size_t i = 0; i < call.parts.size();) {
    const Stretch stretch = stretch_of(call, i);
    i = stretch.end;
    if (!stretch.format) continue;  // the plain product takes everything
    const auto problem = problem_of(call, stretch, choice);
    const kernels::QmatmulCudaPlan plan = kernels::qmatmul_cuda_plan(caps, problem);
    if (plan.ok) continue;
    const std::string arm =
        choice.forced_matmul < 0
            ? "no arm of qmatmul runs it"
            : fmt::format("--arm qmatmul={} does not run it",
                          kernels::qmatmul_cuda_arm_name(static_cast<kernels::QmatmulCudaArm>(choice.forced_matmul)));
    return fmt::format("{}: {}: {}", kernels::qmatmul_cuda_problem_text(problem), arm, plan.reason);
  }
  return "";
}

kernels::AttentionCudaShape shape_of(const Call& call, const GpuChoice& choice) {
  return {call.heads, call.kv_heads, call.k_dim, call.v_dim, choice.kv};
}

/// As CudaOps::attend.
std::string attention_refusal(const DeviceCaps& caps, const Call& call, const GpuChoice& choice) {
  using kernels::AttentionCudaArm;
  const kernels::AttentionCudaShape shape = shape_of(call, choice);
  if (call.rows >= kernels::kTileMinRows && !choice.rows_only) {
    const auto tiles =
        kernels::plan_attention_tiles(caps, shape, static_cast<int>(std::min<int64_t>(call.rows, 1 << 20)));
    if (tiles.kernel != nullptr) return "";
    if (choice.attention == AttentionCudaArm::kTiles)
      return fmt::format("--arm attention=tiles does not run it: {}", tiles.refusal);
  }
  const auto decode = kernels::plan_attention_decode(caps, shape);
  if (decode.kernel != nullptr && choice.attention != AttentionCudaArm::kSimt) return "";
  if (choice.attention == AttentionCudaArm::kDecode)
    return fmt::format("--arm attention=decode does not run it: {}", decode.refusal);
  const auto simt = kernels::plan_attention_simt(caps, shape);
  if (simt.kernel != nullptr) return "";
  return decode.kernel == nullptr ? fmt::format("{}; {}", decode.refusal, simt.refusal) : simt.refusal;
}

std::optional<kernels::AttentionCudaArm> attention_arm_from_name(const std::string& name) {
  using kernels::AttentionCudaArm;
  if (name == "auto") return AttentionCudaArm::kAuto;
  if (name == "tiles") return AttentionCudaArm::kTiles;
  if (name == "decode") return AttentionCudaArm::kDecode;
  if (name == "simt") return AttentionCudaArm::kSimt;
  return std::nullopt;
}

Status choose_arm(GpuChoice& choice, const std::string& op, const std::string& arm) {
  if (op == "qmatmul") {
    const auto matmul = kernels::qmatmul_cuda_arm_from_name(arm);
    if (!matmul && arm != "auto")
      return fail(ErrorCode::kInvalidArgument,
                  "--arm qmatmul={}: there is no such arm on CUDA; known: auto, few-bulk, few-async, few-plain, "
                  "stream, wgmma, expand, mma",
                  arm);
    choice.arm_named = matmul.has_value();
    choice.forced_matmul = matmul ? static_cast<int>(*matmul) : -1;
    return {};
  }
  if (op == "step") {
    if (arm != "auto" && arm != "launches" && arm != "one-kernel")
      return fail(ErrorCode::kInvalidArgument, "--arm step={}: there is no such arm; known: auto, launches, one-kernel",
                  arm);
    choice.step = arm == "auto" ? StepArm::kAuto : arm == "launches" ? StepArm::kLaunches : StepArm::kOneKernel;
    return {};
  }
  if (op != "attention")
    return fail(ErrorCode::kInvalidArgument, "--arm {}={}: on CUDA arms can be chosen for: attention, qmatmul, step",
                op, arm);
  const auto found = attention_arm_from_name(arm);
  if (!found)
    return fail(ErrorCode::kInvalidArgument,
                "--arm attention={}: there is no such arm; known: auto, tiles, decode, simt", arm);
  choice.attention = *found;
  return {};
}

/// What no kernel is written for.
const char* not_on_cuda(Call::Kind kind) {
  switch (kind) {
    case Call::Kind::kExperts: return "one matrix an expert or head is not on CUDA yet";
    case Call::Kind::kGatedDelta: return "the gated delta net is not on CUDA yet";
    case Call::Kind::kLatentAttention: return "latent attention is not on CUDA yet";
    default: return "";
  }
}

/// Appends the call as CudaOps would (exec/cuda_ops_step.cpp), with nothing in memory; or says why not.
const char* append_phase(kernels::StepProgram& program, const Call& call, const GpuChoice& choice) {
  using kernels::StepOutput;
  if (call.kind == Call::Kind::kAttention) {
    static const float kTable = 0;  // that there is one decides, not what it holds
    kernels::QkvArgs qkv{.rows = 1, .heads = call.heads, .append = call.own_kv};
    qkv.kv.kv_heads = call.kv_heads, qkv.kv.k_dim = call.k_dim, qkv.kv.v_dim = call.v_dim;
    qkv.type = store_type(choice.kv);
    if (call.rope_pairs > 0) qkv.rope = &kTable, qkv.rope_pairs = call.rope_pairs;
    return program.attention({.qkv = qkv, .score = {.scale = 1, .softcap = 0, .window = call.window}});
  }
  if (call.kind != Call::Kind::kProduct) return "an operation besides products and attention";
  const Stretch stretch = stretch_of(call, 0);
  if (!stretch.format) return "weights that are not quantized";
  if (stretch.end != call.parts.size()) return "matrices of several formats side by side";
  kernels::CudaMatrix matrix;
  matrix.rows = call.out, matrix.cols = call.in, matrix.format = *stretch.format;
  const StepOutput output = call.goes == Call::Goes::kGated ? StepOutput::kGated
                            : call.goes == Call::Goes::kAdd ? StepOutput::kAdd
                                                            : StepOutput::kStore;
  return program.product(
      matrix, {.input = call.normed ? kernels::StepInput::kNormed : kernels::StepInput::kHalf, .output = output});
}

/// A decode step of one token as phases of one kernel; null, or why it cannot be one.
const char* append_step(kernels::StepProgram& program, const DeviceCaps& caps, const RecordingOps& recorded,
                        const GpuChoice& choice) {
  if (choice.step == StepArm::kLaunches) return "an arm is named";
  if (!caps.has(Feature::kBulkCopy)) return "one kernel needs bulk copies into shared memory (from 9.0 on)";
  const std::vector<Call>& calls = recorded.calls();
  const RecordingOps::Obstacle& obstacle = recorded.obstacle();
  for (size_t i = 0; i < calls.size(); ++i) {
    if (obstacle.what != nullptr && obstacle.at <= i) return obstacle.what;
    // What stands outside of layers, the head, is launched by itself where it is no phase.
    const char* const why = append_phase(program, calls[i], choice);
    if (why != nullptr && calls[i].layer >= 0) return why;
  }
  return obstacle.what != nullptr ? obstacle.what : program.refusal();
}

}  // namespace

Result<GpuChoice> gpu_choice(const DeviceCaps& caps, const std::string& name, const OpsOptions& options, DType kv) {
  if (options.arithmetic == kernels::Arithmetic::kF32)
    return fail(ErrorCode::kUnsupported,
                "--act f32: the GPU multiplies f16 and bf16; allowed: auto, f16, bf16 (or --device cpu)");
  if (options.arithmetic == kernels::Arithmetic::kBF16 && !caps.has(Feature::kBf16))
    return fail(ErrorCode::kUnsupported, "--act bf16: {} multiplies no bf16 (from 8.0 on); allowed: auto, f16", name);
  GpuChoice choice{.arithmetic = options.arithmetic,
                   .kv = kv,
                   .batch_invariant = options.batch_invariant,
                   .expand_bytes = options.expand_mib << 20};
  // One arm whatever the number of rows: the one that takes any.
  if (options.batch_invariant) choice.forced_matmul = static_cast<int>(kernels::QmatmulCudaArm::kMma);
  for (const auto& [op, arm] : options.arms) GALVANI_TRY_VOID(choose_arm(choice, op, arm));
  if (choice.step == StepArm::kAuto && (options.batch_invariant || options.poison || choice.arm_named ||
                                        choice.attention != kernels::AttentionCudaArm::kAuto))
    choice.step = StepArm::kLaunches;
  if (choice.step == StepArm::kOneKernel && options.batch_invariant)
    return fail(
        ErrorCode::kInvalidArgument,
        "--arm step=one-kernel: not under batch invariance, where all rows take the arms of many; leave one out");
  choice.rows_only = options.batch_invariant || choice.attention == kernels::AttentionCudaArm::kDecode ||
                     choice.attention == kernels::AttentionCudaArm::kSimt;
  return choice;
}

std::string cuda_step_plan(const DeviceCaps& caps, const RecordingOps& recorded, const GpuChoice& choice) {
  kernels::StepProgram program(caps, choice.arithmetic);
  const char* const why = append_step(program, caps, recorded, choice);
  return why != nullptr ? std::string("a launch an operation: ") + why : program.text();
}

Status check_gpu_step(const DeviceCaps& caps, const RecordingOps& recorded, const GpuChoice& choice) {
  if (choice.step != StepArm::kOneKernel) return {};
  kernels::StepProgram program(caps, choice.arithmetic);
  const char* const why = append_step(program, caps, recorded, choice);
  if (why == nullptr) return {};
  return fail(ErrorCode::kUnsupported, "--arm step=one-kernel cannot run this model here: {}; leave it out", why);
}

int64_t gpu_workspace_bytes(const DeviceCaps& caps, std::span<const Call> calls, const GpuChoice& choice) {
  int64_t expanded = 0;
  bool dense = false;
  for (const Call& call : calls) {
    if (call.kind != Call::Kind::kProduct) continue;
    for (size_t i = 0; i < call.parts.size();) {
      const Stretch stretch = stretch_of(call, i);
      if (stretch.format)
        expanded = std::max(expanded, kernels::qmatmul_cuda_expands(caps, problem_of(call, stretch, choice)));
      else
        dense |= through_blas(*call.parts[i], choice);
      i = stretch.end;
    }
  }
  return kernels::QmatmulCuda::workspace_bytes(caps, expanded) + (dense ? int64_t{cuda::Blas::kWorkspaceBytes} : 0);
}

std::string cuda_call_plan(const DeviceCaps& caps, const Call& call, const GpuChoice& choice) {
  switch (call.kind) {
    case Call::Kind::kProduct: return product_plan(caps, call, choice);
    case Call::Kind::kExperts:
    case Call::Kind::kGatedDelta:
    case Call::Kind::kLatentAttention: return fmt::format("refused: {}", not_on_cuda(call.kind));
    case Call::Kind::kAttention: return kernels::attention_cuda_plan_str(caps, shape_of(call, choice), call.rows);
  }
  return "?";
}

std::string cuda_call_refusal(const DeviceCaps& caps, const Call& call, const GpuChoice& choice) {
  switch (call.kind) {
    case Call::Kind::kProduct: return product_refusal(caps, call, choice);
    case Call::Kind::kAttention: return attention_refusal(caps, call, choice);
    case Call::Kind::kExperts:
    case Call::Kind::kGatedDelta:
    case Call::Kind::kLatentAttention: return not_on_cuda(call.kind);
  }
  return "?";
}

Status check_gpu_calls(const DeviceCaps& caps, std::span<const Call> calls, const GpuChoice& choice) {
  // What is not on CUDA at all comes first: it says more than the first of its products.
  // Of these the layers before the stacks of matrices that they hold.
  for (const bool stacks : {false, true})
    for (const Call& call : calls)
      if (stacks ? call.kind == Call::Kind::kExperts
                 : call.kind == Call::Kind::kLatentAttention || call.kind == Call::Kind::kGatedDelta)
        return fail(ErrorCode::kUnsupported, "{} of layer {}: {}; run with --device cpu", call.name, call.layer,
                    cuda_call_refusal(caps, call, choice));
  bool quantized = false;
  for (const Call& call : calls) {
    if (call.kind == Call::Kind::kProduct)
      for (const quant::MatrixPtr& part : call.parts) quantized |= a16_of(*part).has_value();
    const std::string refusal = cuda_call_refusal(caps, call, choice);
    if (refusal.empty()) continue;
    const std::string layer = call.layer < 0 ? "" : fmt::format(" of layer {}", call.layer);
    // More tokens than an arm takes are the run's choice, not the part's.
    const auto forced = static_cast<kernels::QmatmulCudaArm>(choice.forced_matmul);
    const int most = choice.forced_matmul < 0                     ? 0
                     : kernels::qmatmul_cuda_is_few(forced)       ? kernels::kFewTokens
                     : forced == kernels::QmatmulCudaArm::kStream ? kernels::kStreamTokens
                                                                  : 0;
    const std::string hint = most > 0 && call.rows > most ? fmt::format(" (-b {} makes steps that short)", most)
                             : choice.forced_matmul < 0   ? "; run with --device cpu"
                                                          : "";
    return fail(ErrorCode::kUnsupported, "this GPU (compute capability {}) does not run {}{}: {}{}",
                compute_capability_str(caps.cc), call.name, layer, refusal, hint);
  }
  if (choice.arm_named && !quantized && !calls.empty())
    return fail(ErrorCode::kUnsupported,
                "--arm qmatmul={}: this model has no quantized product that an arm could run; leave it out",
                kernels::qmatmul_cuda_arm_name(static_cast<kernels::QmatmulCudaArm>(choice.forced_matmul)));
  return {};
}

}  // namespace galvani::exec
