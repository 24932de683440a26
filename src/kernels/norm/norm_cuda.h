#pragma once
/// RMS norms on a GPU: norm.h's formula, fused with the residual add before it. f32 statistics; a row's bits depend on
/// that row alone. dim ≤ 57,344 (a row stands in shared memory).
#include "cuda/stream.h"
#include "kernels/common/rows_form.h"
#include "kernels/norm/norm_cuda_args.h"

namespace galvani::kernels {

/// Errors: kUnsupported when kMany is asked for and its conditions do not hold; launch errors.
Status rms_norm_cuda(cuda::Stream& stream, const NormArgs& args, RowsForm form = RowsForm::kAuto);

}  // namespace galvani::kernels
