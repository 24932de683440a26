// The plain product, for weights that no packed form takes.
#include "cuda/kernel_table.h"
#include "kernels/linear/linear_dense.cuh"

namespace galvani::kernels {
namespace {
__global__ void __launch_bounds__(32 * kDenseWarps) dense(const __grid_constant__ LinearDenseArgs args) {
  start_dependent();
  linear_dense(args);
}
}  // namespace
}  // namespace galvani::kernels

GALVANI_KERNEL_TABLE(linear_dense_sm70, GALVANI_KERNEL("linear_dense_sm70", galvani::kernels::dense, .threads = 128))
