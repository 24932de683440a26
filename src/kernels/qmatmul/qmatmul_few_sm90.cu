// Few tokens, weights by bulk copies: 9.0 and newer.
#include "cuda/kernel_table.h"
#include "kernels/qmatmul/qmatmul_few.cuh"

namespace k = galvani::kernels::GALVANI_CUDA_NS;

GALVANI_KERNEL_TABLE(
    qmatmul_few_sm90,
    GALVANI_KERNEL("qmatmul_few_q4_bf16_sm90", (k::qmatmul_few<4, k::bf16, 1, k::FewCopy::kBulk>), .threads = 512),
    GALVANI_MORE_KERNELS(
        GALVANI_KERNEL("qmatmul_few_q2_bf16_sm90", (k::qmatmul_few<2, k::bf16, 1, k::FewCopy::kBulk>), .threads = 512),
        GALVANI_KERNEL("qmatmul_few_q2_f16_sm90", (k::qmatmul_few<2, k::f16, 1, k::FewCopy::kBulk>), .threads = 512),
        GALVANI_KERNEL("qmatmul_few_q3_bf16_sm90", (k::qmatmul_few<3, k::bf16, 1, k::FewCopy::kBulk>), .threads = 512),
        GALVANI_KERNEL("qmatmul_few_q3_f16_sm90", (k::qmatmul_few<3, k::f16, 1, k::FewCopy::kBulk>), .threads = 512),
        GALVANI_KERNEL("qmatmul_few_q4_f16_sm90", (k::qmatmul_few<4, k::f16, 1, k::FewCopy::kBulk>), .threads = 512),
        GALVANI_KERNEL("qmatmul_few_q5_bf16_sm90", (k::qmatmul_few<5, k::bf16, 1, k::FewCopy::kBulk>), .threads = 512),
        GALVANI_KERNEL("qmatmul_few_q5_f16_sm90", (k::qmatmul_few<5, k::f16, 1, k::FewCopy::kBulk>), .threads = 512),
        GALVANI_KERNEL("qmatmul_few_q6_bf16_sm90", (k::qmatmul_few<6, k::bf16, 1, k::FewCopy::kBulk>), .threads = 512),
        GALVANI_KERNEL("qmatmul_few_q6_f16_sm90", (k::qmatmul_few<6, k::f16, 1, k::FewCopy::kBulk>), .threads = 512),
        GALVANI_KERNEL("qmatmul_few_q8_bf16_sm90", (k::qmatmul_few<8, k::bf16, 1, k::FewCopy::kBulk>), .threads = 512),
        GALVANI_KERNEL("qmatmul_few_q8_f16_sm90", (k::qmatmul_few<8, k::f16, 1, k::FewCopy::kBulk>), .threads = 512),
        GALVANI_KERNEL("qmatmul_few_e2m1_bf16_sm90", (k::qmatmul_few<k::kA16E2M1, k::bf16, 1, k::FewCopy::kBulk>),
                       .threads = 512),
        GALVANI_KERNEL("qmatmul_few_e2m1_f16_sm90", (k::qmatmul_few<k::kA16E2M1, k::f16, 1, k::FewCopy::kBulk>),
                       .threads = 512),
        GALVANI_KERNEL("qmatmul_few_e4m3_bf16_sm90", (k::qmatmul_few<k::kA16E4M3, k::bf16, 1, k::FewCopy::kBulk>),
                       .threads = 512),
        GALVANI_KERNEL("qmatmul_few_e4m3_f16_sm90", (k::qmatmul_few<k::kA16E4M3, k::f16, 1, k::FewCopy::kBulk>),
                       .threads = 512)))
