#pragma once
/// Rope on a GPU: a table of a step's positions, and the kernel that takes the q/k/v product to queries and pages.
#include "cuda/stream.h"
#include "kernels/rope/rope_cuda_args.h"

namespace galvani::kernels {

Status rope_table_cuda(cuda::Stream& stream, const RopeTableArgs& args);
Status qkv_finish_cuda(cuda::Stream& stream, const QkvArgs& args);

}  // namespace galvani::kernels
