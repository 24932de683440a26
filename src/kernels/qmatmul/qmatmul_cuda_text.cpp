#include "kernels/qmatmul/qmatmul_cuda_text.h"

#include <fmt/format.h>

namespace galvani::kernels {
namespace {

void add(std::string& list, const std::string& item) { list += (list.empty() ? "" : ", ") + item; }

}  // namespace

std::string qmatmul_cuda_problem_text(const QmatmulCudaProblem& problem) {
  constexpr const char* kScales[] = {"bf16", "f16", "f32"};
  return fmt::format("{} token{} x [{}, {}], {} bits, group {}, {} scales, {}{}{}", problem.m,
                     problem.m == 1 ? "" : "s", problem.n, problem.k, problem.format.bits, problem.format.group,
                     kScales[static_cast<int>(problem.format.scale)], arithmetic_name(problem.arithmetic),
                     problem.x_aligned ? "" : ", unaligned", problem.gated ? ", gated" : "");
}

std::string qmatmul_cuda_plan_text(const DeviceCaps& caps, const QmatmulCudaProblem& problem, PlanDetail detail,
                                   const QmatmulCudaCrossovers& crossovers) {
  const QmatmulCudaPlan plan = qmatmul_cuda_plan(caps, problem, crossovers);
  std::string declined;
  for (int i = 0; i < kQmatmulCudaArms; ++i) {
    const auto arm = static_cast<QmatmulCudaArm>(i);
    if ((plan.ok || problem.gated) && arm == plan.arm) break;
    if (const char* reason = qmatmul_cuda_declines(arm, caps, problem, crossovers))
      add(declined, fmt::format("{}: {}", qmatmul_cuda_arm_name(arm), reason));
  }
  if (!plan.ok && problem.gated) add(declined, plan.reason);
  if (!plan.ok) return "refused: " + declined;
  std::string text = fmt::format("kernel={} arm={}", plan.kernel(), qmatmul_cuda_arm_name(plan.arm));
  if (plan.tokens > 0) text += fmt::format(" tokens={}", plan.tokens);
  if (detail != PlanDetail::kKernel)
    text += fmt::format(" grid={}x{} cluster={} threads={} smem={}", plan.grid_x, plan.grid_y, plan.cluster,
                        plan.threads, plan.smem);
  if (plan.arm == QmatmulCudaArm::kWgmma && plan.wgmma.splits > 1) text += fmt::format(" parts={}", plan.wgmma.splits);
  if (plan.dependent_launch) text += " dependent";
  if (detail == PlanDetail::kReasons && !declined.empty()) text += " (" + declined + ")";
  return text;
}

}  // namespace galvani::kernels
