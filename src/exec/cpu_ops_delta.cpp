// The gated delta net of CpuOps.
#include "core/error.h"
#include "exec/cpu_ops_impl.h"

namespace galvani::exec {

Act CpuOps::gated_delta(const Act& x, const std::optional<Norm>&, const GatedDeltaLayer& layer) {
  fail_step(fail(ErrorCode::kUnsupported, "the gated delta net is not implemented on the CPU yet"));
  return zeros(x.rows, int64_t{layer.value_heads} * layer.v_dim);
}

}  // namespace galvani::exec
