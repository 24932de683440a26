// Plain reads by bulk copies: 9.0 and newer.
#include "bench/read_bulk.cuh"
#include "cuda/kernel_table.h"

GALVANI_KERNEL_TABLE(read_bulk_sm90,
                     GALVANI_KERNEL("read_bulk_sm90", galvani::kernels::GALVANI_CUDA_NS::read_bulk, .threads = 32))
