#include "exec/call_plans.h"

namespace galvani::exec {

std::string cuda_call_plan(const DeviceCaps& caps, const RecordingOps::Call& call, DType kv) {
  (void)caps, (void)kv;
  switch (call.kind) {
    case RecordingOps::Call::Kind::kProduct:
    case RecordingOps::Call::Kind::kExperts:
    case RecordingOps::Call::Kind::kAttention: break;
  }
  return "no GPU plan: this operation runs on the CPU alone so far";
}

}  // namespace galvani::exec
