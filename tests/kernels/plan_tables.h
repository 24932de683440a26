#pragma once
/// The operations whose plans are kept in tests/data/plans. An operation adds a function in <op>_plan_table.cpp and a
/// line to plan_tables.cpp.
#include <set>
#include <string>
#include <vector>

#include "kernels/plan_golden.h"

namespace galvani::kernels {

std::vector<PlanTable> plan_tables();

PlanTable qmatmul_cuda_plan_table();
PlanTable step_plan_table();

/// Kernels that an operation launches whatever the part and the problem; each needs a reason in plan_tables.cpp.
std::set<std::string> kernels_without_a_choice();

}  // namespace galvani::kernels
