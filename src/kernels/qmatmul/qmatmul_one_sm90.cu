// One token, weights by bulk copies: 9.0 and newer.
#include "cuda/kernel_table.h"
#include "kernels/qmatmul/qmatmul_one.cuh"

namespace k = galvani::kernels::GALVANI_CUDA_NS;

GALVANI_KERNEL_TABLE(
    qmatmul_one_sm90, GALVANI_KERNEL("qmatmul_one_q4_bf16_c4_sm90", (k::qmatmul_one<4, k::bf16, 4>), .threads = 512),
    GALVANI_MORE_KERNELS(GALVANI_KERNEL("qmatmul_one_q4_f16_c4_sm90", (k::qmatmul_one<4, k::f16, 4>), .threads = 512),
                         GALVANI_KERNEL("qmatmul_one_q4_bf16_c8_sm90", (k::qmatmul_one<4, k::bf16, 8>), .threads = 512),
                         GALVANI_KERNEL("qmatmul_one_q4_f16_c8_sm90", (k::qmatmul_one<4, k::f16, 8>), .threads = 512),
                         GALVANI_KERNEL("qmatmul_one_q2_bf16_c4_sm90", (k::qmatmul_one<2, k::bf16, 4>), .threads = 512),
                         GALVANI_KERNEL("qmatmul_one_q2_f16_c4_sm90", (k::qmatmul_one<2, k::f16, 4>), .threads = 512),
                         GALVANI_KERNEL("qmatmul_one_q2_bf16_c8_sm90", (k::qmatmul_one<2, k::bf16, 8>), .threads = 512),
                         GALVANI_KERNEL("qmatmul_one_q2_f16_c8_sm90", (k::qmatmul_one<2, k::f16, 8>), .threads = 512),
                         GALVANI_KERNEL("qmatmul_one_q3_bf16_c4_sm90", (k::qmatmul_one<3, k::bf16, 4>), .threads = 512),
                         GALVANI_KERNEL("qmatmul_one_q3_f16_c4_sm90", (k::qmatmul_one<3, k::f16, 4>), .threads = 512),
                         GALVANI_KERNEL("qmatmul_one_q3_bf16_c8_sm90", (k::qmatmul_one<3, k::bf16, 8>), .threads = 512),
                         GALVANI_KERNEL("qmatmul_one_q3_f16_c8_sm90", (k::qmatmul_one<3, k::f16, 8>), .threads = 512),
                         GALVANI_KERNEL("qmatmul_one_q5_bf16_c4_sm90", (k::qmatmul_one<5, k::bf16, 4>), .threads = 512),
                         GALVANI_KERNEL("qmatmul_one_q5_f16_c4_sm90", (k::qmatmul_one<5, k::f16, 4>), .threads = 512),
                         GALVANI_KERNEL("qmatmul_one_q6_bf16_c4_sm90", (k::qmatmul_one<6, k::bf16, 4>), .threads = 512),
                         GALVANI_KERNEL("qmatmul_one_q6_f16_c4_sm90", (k::qmatmul_one<6, k::f16, 4>), .threads = 512),
                         GALVANI_KERNEL("qmatmul_one_q8_bf16_c4_sm90", (k::qmatmul_one<8, k::bf16, 4>), .threads = 512),
                         GALVANI_KERNEL("qmatmul_one_q8_f16_c4_sm90", (k::qmatmul_one<8, k::f16, 4>), .threads = 512)))
