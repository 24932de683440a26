// Many tokens by wgmma: 9.0a.
#include "cuda/kernel_table.h"
#include "kernels/qmatmul/qmatmul_parts.cuh"
#include "kernels/qmatmul/qmatmul_wgmma.cuh"

namespace k = galvani::kernels::GALVANI_CUDA_NS;

GALVANI_KERNEL_TABLE(
    qmatmul_wgmma_sm90a, GALVANI_KERNEL("qmatmul_parts_bf16_sm90a", k::qmatmul_parts<k::bf16>, .threads = 256),
    GALVANI_KERNEL("qmatmul_parts_f16_sm90a", k::qmatmul_parts<k::f16>, .threads = 256),
    GALVANI_KERNEL("qmatmul_wgmma_q2_bf16_t64_sm90a", (k::qmatmul_wgmma<2, k::bf16, 64>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q2_bf16_t128_sm90a", (k::qmatmul_wgmma<2, k::bf16, 128>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q2_bf16_t256_sm90a", (k::qmatmul_wgmma<2, k::bf16, 256>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q2_f16_t128_sm90a", (k::qmatmul_wgmma<2, k::f16, 128>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q3_bf16_t64_sm90a", (k::qmatmul_wgmma<3, k::bf16, 64>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q3_bf16_t128_sm90a", (k::qmatmul_wgmma<3, k::bf16, 128>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q3_bf16_t256_sm90a", (k::qmatmul_wgmma<3, k::bf16, 256>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q3_f16_t128_sm90a", (k::qmatmul_wgmma<3, k::f16, 128>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q4_bf16_t64_sm90a", (k::qmatmul_wgmma<4, k::bf16, 64>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q4_bf16_t128_sm90a", (k::qmatmul_wgmma<4, k::bf16, 128>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q4_bf16_t256_sm90a", (k::qmatmul_wgmma<4, k::bf16, 256>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q4_f16_t128_sm90a", (k::qmatmul_wgmma<4, k::f16, 128>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q5_bf16_t64_sm90a", (k::qmatmul_wgmma<5, k::bf16, 64>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q5_bf16_t128_sm90a", (k::qmatmul_wgmma<5, k::bf16, 128>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q5_bf16_t256_sm90a", (k::qmatmul_wgmma<5, k::bf16, 256>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q5_f16_t128_sm90a", (k::qmatmul_wgmma<5, k::f16, 128>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q6_bf16_t64_sm90a", (k::qmatmul_wgmma<6, k::bf16, 64>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q6_bf16_t128_sm90a", (k::qmatmul_wgmma<6, k::bf16, 128>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q6_bf16_t256_sm90a", (k::qmatmul_wgmma<6, k::bf16, 256>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q6_f16_t128_sm90a", (k::qmatmul_wgmma<6, k::f16, 128>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q8_bf16_t64_sm90a", (k::qmatmul_wgmma<8, k::bf16, 64>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q8_bf16_t128_sm90a", (k::qmatmul_wgmma<8, k::bf16, 128>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q8_bf16_t256_sm90a", (k::qmatmul_wgmma<8, k::bf16, 256>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_q8_f16_t128_sm90a", (k::qmatmul_wgmma<8, k::f16, 128>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_e2m1_bf16_t64_sm90a", (k::qmatmul_wgmma<k::kA16E2M1, k::bf16, 64>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_e2m1_bf16_t128_sm90a", (k::qmatmul_wgmma<k::kA16E2M1, k::bf16, 128>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_e2m1_bf16_t256_sm90a", (k::qmatmul_wgmma<k::kA16E2M1, k::bf16, 256>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_e2m1_f16_t128_sm90a", (k::qmatmul_wgmma<k::kA16E2M1, k::f16, 128>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_e4m3_bf16_t64_sm90a", (k::qmatmul_wgmma<k::kA16E4M3, k::bf16, 64>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_e4m3_bf16_t128_sm90a", (k::qmatmul_wgmma<k::kA16E4M3, k::bf16, 128>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_e4m3_bf16_t256_sm90a", (k::qmatmul_wgmma<k::kA16E4M3, k::bf16, 256>), .threads = 384),
    GALVANI_KERNEL("qmatmul_wgmma_e4m3_f16_t128_sm90a", (k::qmatmul_wgmma<k::kA16E4M3, k::f16, 128>), .threads = 384))
