#pragma once
#include <string>

#include "kernels/plan_detail.h"
#include "kernels/qmatmul/qmatmul_cuda_plan.h"

namespace galvani::kernels {

std::string qmatmul_cuda_plan_text(const DeviceCaps& caps, const QmatmulCudaProblem& problem, PlanDetail detail);

}  // namespace galvani::kernels
