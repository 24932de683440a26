#pragma once
/// Element-wise kernels on a GPU, and embedding look-up.
#include "cuda/stream.h"
#include "kernels/elementwise/elementwise_cuda_args.h"

namespace galvani::kernels {

Status gated_cuda(cuda::Stream& stream, const GatedArgs& args);
Status finish_rows_cuda(cuda::Stream& stream, const FinishArgs& args);
Status count_values_cuda(cuda::Stream& stream, const CountArgs& args);
Status embed_cuda(cuda::Stream& stream, const EmbedArgs& args);

}  // namespace galvani::kernels
