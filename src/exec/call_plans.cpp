#include "exec/call_plans.h"

#include "kernels/attention/attention_cuda.h"

namespace galvani::exec {

std::string cuda_call_plan(const DeviceCaps& caps, const RecordingOps::Call& call, DType kv) {
  switch (call.kind) {
    case RecordingOps::Call::Kind::kProduct:
    case RecordingOps::Call::Kind::kExperts: break;
    case RecordingOps::Call::Kind::kAttention:
      return kernels::attention_cuda_plan_str(caps, {call.heads, call.kv_heads, call.k_dim, call.v_dim, kv}, call.rows);
  }
  return "no GPU plan: this operation runs on the CPU alone so far";
}

}  // namespace galvani::exec
