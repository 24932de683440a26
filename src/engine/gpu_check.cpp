#include "engine/gpu_check.h"

#include <algorithm>

#include "core/error.h"
#include "exec/cuda_weights.h"
#include "models/model.h"

namespace galvani::engine {

Result<int64_t> check_gpu_model(quant::Checkpoint& checkpoint, const DeviceCaps& caps, const exec::GpuChoice& choice,
                                int64_t longest_step) {
  exec::RecordingOps ops;
  GALVANI_TRY(const auto model, models::load_model(checkpoint, ops));
  for (const int64_t rows : {int64_t{1}, std::max<int64_t>(1, longest_step)}) {
    const exec::Batch batch = ops.begin_recording(rows);
    model->forward(batch, ops);
    GALVANI_TRY_VOID(exec::check_gpu_calls(caps, ops.calls(), choice));
    if (rows == 1) GALVANI_TRY_VOID(exec::check_gpu_step(caps, ops, choice));
  }
  if (!model->state_spec().slots.empty())
    return fail(ErrorCode::kUnsupported, "{}: recurrent layers are not on CUDA yet; run with --device cpu",
                model->info().family);
  return exec::expected_weight_bytes(ops);
}

}  // namespace galvani::engine
