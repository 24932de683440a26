// Sampling kernels.
#include "cuda/kernel_table.h"
#include "kernels/sampling/sampling_cuda.cuh"

namespace galvani::kernels::sampling {
namespace {
__global__ void __launch_bounds__(256) copy_kernel(const __grid_constant__ SampleArgs args) {
  start_dependent();
  copy_masked(args);
}
__global__ void __launch_bounds__(256) edit_kernel(const __grid_constant__ SampleArgs args) {
  start_dependent();
  apply_edits(args);
}
__global__ void __launch_bounds__(kScanThreads) scan_kernel(const __grid_constant__ SampleArgs args) {
  start_dependent();
  scan(args);
}
__global__ void __launch_bounds__(kThreads) pick_kernel(const __grid_constant__ SampleArgs args, int parts) {
  start_dependent();
  pick(args, parts);
}
}  // namespace
}  // namespace galvani::kernels::sampling

namespace sampling = galvani::kernels::sampling;
GALVANI_KERNEL_TABLE(sampling_sm70, GALVANI_KERNEL("sample_copy_sm70", sampling::copy_kernel, .threads = 256),
                     GALVANI_KERNEL("sample_edit_sm70", sampling::edit_kernel, .threads = 256),
                     GALVANI_KERNEL("sample_scan_sm70", sampling::scan_kernel, .threads = 256),
                     GALVANI_KERNEL("sample_pick_sm70", sampling::pick_kernel))
