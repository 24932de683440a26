// Many tokens by mma.sync, bf16: 8.0 and newer.
#include "cuda/kernel_table.h"
#include "kernels/qmatmul/qmatmul_mma.cuh"

namespace k = galvani::kernels::GALVANI_CUDA_NS;

GALVANI_KERNEL_TABLE(
    qmatmul_mma_sm80, GALVANI_KERNEL("qmatmul_mma_q4_bf16_sm80", (k::qmatmul_mma<4, k::bf16>), .threads = 128),
    GALVANI_MORE_KERNELS(
        GALVANI_KERNEL("qmatmul_mma_q2_bf16_sm80", (k::qmatmul_mma<2, k::bf16>), .threads = 128),
        GALVANI_KERNEL("qmatmul_mma_q3_bf16_sm80", (k::qmatmul_mma<3, k::bf16>), .threads = 128),
        GALVANI_KERNEL("qmatmul_mma_q5_bf16_sm80", (k::qmatmul_mma<5, k::bf16>), .threads = 128),
        GALVANI_KERNEL("qmatmul_mma_q6_bf16_sm80", (k::qmatmul_mma<6, k::bf16>), .threads = 128),
        GALVANI_KERNEL("qmatmul_mma_q8_bf16_sm80", (k::qmatmul_mma<8, k::bf16>), .threads = 128),
        GALVANI_KERNEL("qmatmul_mma_e2m1_bf16_sm80", (k::qmatmul_mma<k::kA16E2M1, k::bf16>), .threads = 128),
        GALVANI_KERNEL("qmatmul_mma_e4m3_bf16_sm80", (k::qmatmul_mma<k::kA16E4M3, k::bf16>), .threads = 128)))
