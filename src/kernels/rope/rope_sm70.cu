// Rope tables and the kernel between the q/k/v product and attention.
#include "cuda/kernel_table.h"
#include "kernels/rope/rope_cuda.cuh"

namespace galvani::kernels {
namespace {
__global__ void __launch_bounds__(256) table(const __grid_constant__ RopeTableArgs args) { rope_table(args); }
__global__ void __launch_bounds__(32 * kQkvWarps) finish(const __grid_constant__ QkvArgs args) { qkv_finish(args); }
__global__ void __launch_bounds__(32 * kQkvWarps, 7) finish_many(const __grid_constant__ QkvArgs args) {
  qkv_finish_many<6>(args);
}
}  // namespace
}  // namespace galvani::kernels

GALVANI_KERNEL_TABLE(rope_sm70, GALVANI_KERNEL("rope_table_sm70", galvani::kernels::table, .threads = 256),
                     GALVANI_KERNEL("qkv_finish_many_sm70", galvani::kernels::finish_many, .threads = 128),
                     GALVANI_KERNEL("qkv_finish_sm70", galvani::kernels::finish, .threads = 128))
