#pragma once
/// Which kernel a GPU would run for a recorded call: each operation's own pure plan function, asked for a part that
/// need not be here.
#include <string>

#include "core/dtype.h"
#include "device/device_caps.h"
#include "exec/recording_ops.h"

namespace galvani::exec {

struct CudaCallPlan {
  enum class Answer {
    kRuns,
    kRefusedAtLoad,  ///< CudaOps does not have the operation: the model does not load, and `auto` takes the CPU
    kRefusedInStep,  ///< no arm takes this shape on this part: it loads, and the first such step is an error
  };
  Answer answer = Answer::kRuns;
  /// One line: the kernel and what was decided, or "refused: " and every arm's reason.
  std::string text;
};
CudaCallPlan cuda_call_plan(const DeviceCaps& caps, const RecordingOps::Call& call, DType kv);

}  // namespace galvani::exec
