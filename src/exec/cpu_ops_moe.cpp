// Experts of CpuOps: router, tokens grouped by expert, weighed sum.
#include "core/error.h"
#include "exec/cpu_ops_impl.h"

namespace galvani::exec {

Act CpuOps::moe(const Act& x, const std::optional<Norm>&, const MoeLayer&) {
  fail_step(fail(ErrorCode::kUnsupported, "mixture of experts is not implemented on the CPU yet"));
  return zeros(x.rows, x.cols);
}

}  // namespace galvani::exec
