#pragma once
/// Whether a GPU can run a model: every operation's plan is asked before a byte of it is uploaded.
#include "exec/call_plans.h"
#include "quant/checkpoint.h"

namespace galvani::engine {

/// Records the model's forward pass for one row and for the longest step, and asks the plans. Pure but for reading the
/// checkpoint's small tensors; the part need not be here. Errors: kUnsupported naming the first operation that the part
/// refuses and why; whatever loading the model reports. Returns exec::expected_weight_bytes().
Result<int64_t> check_gpu_model(quant::Checkpoint& checkpoint, const DeviceCaps& caps, const exec::GpuChoice& choice,
                                int64_t longest_step);

}  // namespace galvani::engine
