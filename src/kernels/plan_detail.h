#pragma once
/// Plans as one line of text: the same line in `inspect --device`, in GALVANI_TRACE=plan and in the golden files
/// (tests/kernels/plan_golden.h). It holds kernel=NAME for what would run, or "refused: " and every arm's reason.

namespace galvani::kernels {

/// How much of a plan is told.
enum class PlanDetail {
  kKernel,   ///< kernel and arm
  kLaunch,   ///< and grid, cluster, shared memory, which differ from shape to shape
  kReasons,  ///< kLaunch, and why each arm before it declined
};

}  // namespace galvani::kernels
