#include "cuda/kernel_table.h"
#include "kernels/probe/read_sm70.cuh"

GALVANI_KERNEL_TABLE(read_sm70,
                     GALVANI_KERNEL("read_sweep_sm70", galvani::kernels::GALVANI_CUDA_NS::read_sweep_sm70_kernel,
                                    .threads = galvani::kernels::GALVANI_CUDA_NS::kReadThreads),
                     GALVANI_KERNEL("random_fill_sm70", galvani::kernels::GALVANI_CUDA_NS::random_fill_sm70_kernel,
                                    .threads = 256))
