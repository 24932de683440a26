#pragma once
/// The plain product on a GPU: every width and type, no matrix instructions. For weights that qmatmul does not take;
/// right first, slow (README.md).
#include "cuda/stream.h"
#include "kernels/linear/linear_dense_args.h"

namespace galvani::kernels {

Status linear_dense_cuda(cuda::Stream& stream, const LinearDenseArgs& args);

}  // namespace galvani::kernels
