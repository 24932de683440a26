#pragma once
/// Rope on a GPU: a table of a step's positions, and the kernel that takes the q/k/v product to queries and pages.
#include "cuda/stream.h"
#include "kernels/common/rows_form.h"
#include "kernels/rope/rope_cuda_args.h"

namespace galvani::kernels {

Status rope_table_cuda(cuda::Stream& stream, const RopeTableArgs& args);
/// Errors: kUnsupported when kMany is asked for and its conditions do not hold; launch errors.
Status qkv_finish_cuda(cuda::Stream& stream, const QkvArgs& args, RowsForm form = RowsForm::kAuto);

}  // namespace galvani::kernels
