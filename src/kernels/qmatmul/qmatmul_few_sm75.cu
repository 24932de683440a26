// Few tokens, weights by plain loads: 7.5 and newer, f16.
#include "cuda/kernel_table.h"
#include "kernels/qmatmul/qmatmul_few.cuh"

namespace k = galvani::kernels::GALVANI_CUDA_NS;

GALVANI_KERNEL_TABLE(
    qmatmul_few_sm75,
    GALVANI_KERNEL("qmatmul_few_q4_f16_sm75", (k::qmatmul_few<4, k::f16, 1, k::FewCopy::kPlain>), .threads = 512),
    GALVANI_MORE_KERNELS(
        GALVANI_KERNEL("qmatmul_few_q2_f16_sm75", (k::qmatmul_few<2, k::f16, 1, k::FewCopy::kPlain>), .threads = 512),
        GALVANI_KERNEL("qmatmul_few_q3_f16_sm75", (k::qmatmul_few<3, k::f16, 1, k::FewCopy::kPlain>), .threads = 512),
        GALVANI_KERNEL("qmatmul_few_q5_f16_sm75", (k::qmatmul_few<5, k::f16, 1, k::FewCopy::kPlain>), .threads = 512),
        GALVANI_KERNEL("qmatmul_few_q6_f16_sm75", (k::qmatmul_few<6, k::f16, 1, k::FewCopy::kPlain>), .threads = 512),
        GALVANI_KERNEL("qmatmul_few_e2m1_f16_sm75", (k::qmatmul_few<k::kA16E2M1, k::f16, 1, k::FewCopy::kPlain>),
                       .threads = 512)))
