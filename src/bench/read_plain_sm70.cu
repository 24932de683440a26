// Plain reads by loads: any part.
#include "bench/read_plain.cuh"
#include "cuda/kernel_table.h"

GALVANI_KERNEL_TABLE(read_plain_sm70,
                     GALVANI_KERNEL("read_plain_sm70", galvani::kernels::GALVANI_CUDA_NS::read_plain, .threads = 1024))
