// RMS norm kernels; nothing in them needs more than Volta has.
#include "cuda/kernel_table.h"
#include "kernels/norm/norm_cuda.cuh"

namespace galvani::kernels {
namespace {
__global__ void __launch_bounds__(1024) norm(const __grid_constant__ NormArgs args) { rms_norm_rows(args); }
// Registers for as many threads as there can be: bytes under way count.
__global__ void __maxnreg__(32) many(const __grid_constant__ NormArgs args) { rms_norm_many(args); }
}  // namespace
}  // namespace galvani::kernels

GALVANI_KERNEL_TABLE(norm_sm70, GALVANI_KERNEL("rms_norm_many_sm70", galvani::kernels::many),
                     GALVANI_KERNEL("rms_norm_sm70", galvani::kernels::norm))
