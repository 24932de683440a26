#pragma once
/// Ops on the CPU: activations are f32 arrays in an arena; where one enters a matrix product it is rounded to the
/// run's arithmetic. Threads are the process's one pool (core/parallel.h).
#include <memory>

#include "exec/ops.h"

namespace galvani::exec {

/// Refuses unknown or impossible forced arms by name.
Result<std::unique_ptr<Ops>> create_cpu_ops(const OpsOptions& options);

/// What `--act auto` means on this CPU: bf16 where it multiplies bf16, else f32.
kernels::Arithmetic cpu_default_arithmetic();

}  // namespace galvani::exec
