// A decode step in one kernel: bulk copies and all blocks resident; 9.0 and newer.
#include "cuda/kernel_table.h"
#include "kernels/step/step.cuh"

namespace k = galvani::kernels::GALVANI_CUDA_NS;

GALVANI_KERNEL_TABLE(step_sm90, GALVANI_KERNEL("decode_step_q4_bf16_sm90", (k::decode_step<k::bf16>), .threads = 512),
                     GALVANI_KERNEL("decode_step_q4_f16_sm90", (k::decode_step<k::f16>), .threads = 512))
