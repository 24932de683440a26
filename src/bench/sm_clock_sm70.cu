// The multiprocessors' clock: any part.
#include "bench/sm_clock.cuh"
#include "cuda/kernel_table.h"

GALVANI_KERNEL_TABLE(sm_clock_sm70,
                     GALVANI_KERNEL("sm_clock_sm70", galvani::kernels::GALVANI_CUDA_NS::sm_clock, .threads = 1))
