// Gated activations, the logits' last step, embedding look-up.
#include "cuda/kernel_table.h"
#include "kernels/elementwise/elementwise_cuda.cuh"

namespace galvani::kernels {
namespace {
__global__ void __launch_bounds__(256) gate(const __grid_constant__ GatedArgs args) { gated(args); }
__global__ void __launch_bounds__(256) finish(const __grid_constant__ FinishArgs args) {
  start_dependent();
  finish_rows(args);
}
__global__ void __launch_bounds__(256) count(const __grid_constant__ CountArgs args) {
  start_dependent();
  count_values(args);
}
__global__ void __launch_bounds__(256) embed(const __grid_constant__ EmbedArgs args) { embed_rows(args); }
}  // namespace
}  // namespace galvani::kernels

GALVANI_KERNEL_TABLE(elementwise_sm70, GALVANI_KERNEL("gated_sm70", galvani::kernels::gate, .threads = 256),
                     GALVANI_KERNEL("finish_rows_sm70", galvani::kernels::finish, .threads = 256),
                     GALVANI_KERNEL("count_values_sm70", galvani::kernels::count, .threads = 256),
                     GALVANI_KERNEL("embed_sm70", galvani::kernels::embed, .threads = 256))
