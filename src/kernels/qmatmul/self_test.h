#pragma once
#include "device/cpu_caps.h"
#include "kernels/qmatmul/arms.h"

namespace galvani::kernels {

/// Multiplies small integers, whose products and sums are exact in f32 in any order, through a bf16 arm.
bool computes_integers_exactly(void (*arm)(const ArmCall&));

/// cpu_caps(), less what this machine claims but does not compute right: the AMX arm must pass the test above before
/// it is first chosen. Decided once a process; a failure is logged and the arm declined from then on.
const CpuCaps& checked_caps();

}  // namespace galvani::kernels
