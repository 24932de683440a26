// Multi-head latent attention of CpuOps.
#include "core/error.h"
#include "exec/cpu_ops_impl.h"

namespace galvani::exec {

Act CpuOps::latent_attention(const Act& x, const std::optional<Norm>&, const LatentAttentionLayer& layer) {
  fail_step(fail(ErrorCode::kUnsupported, "latent attention is not implemented on the CPU yet"));
  return zeros(x.rows, int64_t{layer.heads} * layer.v_dim);
}

}  // namespace galvani::exec
