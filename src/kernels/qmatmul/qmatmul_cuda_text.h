#pragma once
#include <string>

#include "kernels/plan_detail.h"
#include "kernels/qmatmul/qmatmul_cuda_plan.h"

namespace galvani::kernels {

/// "1 token x [4096, 4096], 4 bits, group 64, bf16 scales, bf16": what a plan is asked for.
std::string qmatmul_cuda_problem_text(const QmatmulCudaProblem& problem);
std::string qmatmul_cuda_plan_text(const DeviceCaps& caps, const QmatmulCudaProblem& problem, PlanDetail detail,
                                   const QmatmulCudaCrossovers& crossovers = {});

}  // namespace galvani::kernels
