#pragma once
/// RMS norms on a GPU: norm.h's formula, fused with the residual add before it. f32 statistics; a row's bits depend on
/// that row alone. Longest rows: norm_most_dim.
#include "cuda/stream.h"
#include "device/device_caps.h"
#include "kernels/common/rows_form.h"
#include "kernels/norm/norm_cuda_args.h"

namespace galvani::kernels {

/// Rows beyond kNormSixteen wait in a block's shared memory, beside 1 KiB at most of its sums.
constexpr int norm_most_dim(const DeviceCaps& caps) {
  const int dim = (caps.smem_optin - 1024) / 4;
  return dim > kNormSixteen ? dim : kNormSixteen;
}

/// Errors: kUnsupported when kMany is asked for and its conditions do not hold; launch errors.
Status rms_norm_cuda(cuda::Stream& stream, const NormArgs& args, RowsForm form = RowsForm::kAuto);

}  // namespace galvani::kernels
