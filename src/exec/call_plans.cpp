#include "exec/call_plans.h"

#include <optional>

#include "core/error.h"
#include "kernels/attention/attention_cuda.h"
#include "kernels/qmatmul/qmatmul_cuda.h"
#include "kernels/qmatmul/qmatmul_cuda_text.h"

namespace galvani::exec {
namespace {

using Call = RecordingOps::Call;

/// The format that A16 packing gives a matrix of affine or float codes; none for the other kinds.
std::optional<kernels::A16Format> a16_of(const quant::MatrixSource& matrix) {
  const auto format = kernels::qmatmul_cuda_format_of(matrix);
  return format ? std::optional(*format) : std::nullopt;
}

std::string product_plan(const DeviceCaps& caps, const Call& call) {
  // Parts of one format are one product; each run of equal ones is asked for.
  std::string text;
  const auto add = [&](const std::string& plan) { text += (text.empty() ? "" : "; then ") + plan; };
  for (size_t i = 0; i < call.parts.size();) {
    const auto format = a16_of(*call.parts[i]);
    int64_t rows = 0;
    size_t end = i;
    for (; end < call.parts.size(); ++end) {
      const auto other = a16_of(*call.parts[end]);
      if (other != format) break;
      rows += call.parts[end]->rows();
    }
    if (format) {
      kernels::QmatmulCudaProblem problem;
      problem.m = call.rows, problem.n = rows, problem.k = call.in, problem.format = *format;
      problem.kind = kernels::weight_kind_of(*format);
      problem.arithmetic = caps.has(Feature::kBf16) ? kernels::Arithmetic::kBF16 : kernels::Arithmetic::kF16;
      add(kernels::qmatmul_cuda_plan_text(caps, problem, kernels::PlanDetail::kReasons));
    } else {
      // As CudaOps: cuBLASLt for weights of the activations' type, else the plain product.
      const quant::MatrixSource& matrix = *call.parts[i];
      const bool blas = matrix.kind() == quant::MatrixKind::kDense &&
                        matrix.dtype() == (caps.has(Feature::kBf16) ? DType::kBF16 : DType::kF16) && call.in % 8 == 0;
      add(blas ? "cuBLASLt"
               : "kernel=linear_dense_sm70 (no packed form and no cuBLASLt product for " + matrix.format() + ")");
    }
    i = end;
  }
  return text;
}

}  // namespace

CudaCallPlan cuda_call_plan(const DeviceCaps& caps, const Call& call, DType kv) {
  const auto absent = [](const char* what) {
    return CudaCallPlan{CudaCallPlan::Answer::kRefusedAtLoad, fmt::format("refused: {} on the CPU alone so far", what)};
  };
  const auto planned = [](std::string text) {
    const bool refused = text.find("refused: ") != std::string::npos;
    return CudaCallPlan{refused ? CudaCallPlan::Answer::kRefusedInStep : CudaCallPlan::Answer::kRuns, std::move(text)};
  };
  switch (call.kind) {
    case Call::Kind::kProduct: return planned(product_plan(caps, call));
    case Call::Kind::kExperts: return absent("products of one matrix an expert or head run");
    case Call::Kind::kLatentAttention: return absent("latent attention runs");
    case Call::Kind::kGatedDelta: return absent("the gated delta net runs");
    case Call::Kind::kAttention:
      if (call.norm_whole) return planned("refused: a norm over all heads at once runs on the CPU alone so far");
      return planned(
          kernels::attention_cuda_plan_str(caps, {call.heads, call.kv_heads, call.k_dim, call.v_dim, kv}, call.rows));
  }
  return {CudaCallPlan::Answer::kRefusedInStep, "?"};
}

}  // namespace galvani::exec
