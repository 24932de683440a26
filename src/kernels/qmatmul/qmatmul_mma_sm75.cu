// Many tokens by mma.sync, f16: 7.5 and newer.
#include "cuda/kernel_table.h"
#include "kernels/qmatmul/qmatmul_mma.cuh"

namespace k = galvani::kernels::GALVANI_CUDA_NS;

GALVANI_KERNEL_TABLE(
    qmatmul_mma_sm75, GALVANI_KERNEL("qmatmul_mma_q4_f16_sm75", (k::qmatmul_mma<4, k::f16>), .threads = 128),
    GALVANI_MORE_KERNELS(
        GALVANI_KERNEL("qmatmul_mma_q2_f16_sm75", (k::qmatmul_mma<2, k::f16>), .threads = 128),
        GALVANI_KERNEL("qmatmul_mma_q3_f16_sm75", (k::qmatmul_mma<3, k::f16>), .threads = 128),
        GALVANI_KERNEL("qmatmul_mma_q5_f16_sm75", (k::qmatmul_mma<5, k::f16>), .threads = 128),
        GALVANI_KERNEL("qmatmul_mma_q6_f16_sm75", (k::qmatmul_mma<6, k::f16>), .threads = 128),
        GALVANI_KERNEL("qmatmul_mma_q8_f16_sm75", (k::qmatmul_mma<8, k::f16>), .threads = 128),
        GALVANI_KERNEL("qmatmul_mma_e2m1_f16_sm75", (k::qmatmul_mma<k::kA16E2M1, k::f16>), .threads = 128),
        GALVANI_KERNEL("qmatmul_mma_e4m3_f16_sm75", (k::qmatmul_mma<k::kA16E4M3, k::f16>), .threads = 128)))
