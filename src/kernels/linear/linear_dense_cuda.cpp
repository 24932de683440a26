#include "kernels/linear/linear_dense_cuda.h"

#include "core/error.h"
#include "cuda/launch.h"

namespace galvani::kernels {

Status linear_dense_cuda(cuda::Stream& stream, const LinearDenseArgs& args) {
  constexpr int kRows = 8, kWarps = 4;  // linear_dense.cuh
  GALVANI_TRY(const cuda::Kernel* kernel, stream.device().kernel("linear_dense_sm70"));
  const auto columns = static_cast<unsigned>((args.n + kWarps - 1) / kWarps);
  const auto tiles = static_cast<unsigned>((args.rows + kRows - 1) / kRows);
  return cuda::launch(stream, *kernel, {.grid = {columns, tiles}, .block = {32 * kWarps}}, args);
}

}  // namespace galvani::kernels
