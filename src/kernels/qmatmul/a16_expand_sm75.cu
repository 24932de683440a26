// A16 to a dense f16 matrix.
#include "cuda/kernel_table.h"
#include "kernels/qmatmul/a16_expand.cuh"

namespace k = galvani::kernels::GALVANI_CUDA_NS;

GALVANI_KERNEL_TABLE(
    a16_expand_sm75, GALVANI_KERNEL("a16_expand_q4_f16_sm75", (k::a16_expand<4, k::f16>), .threads = 256),
    GALVANI_MORE_KERNELS(
        GALVANI_KERNEL("a16_expand_q2_f16_sm75", (k::a16_expand<2, k::f16>), .threads = 256),
        GALVANI_KERNEL("a16_expand_q3_f16_sm75", (k::a16_expand<3, k::f16>), .threads = 256),
        GALVANI_KERNEL("a16_expand_q5_f16_sm75", (k::a16_expand<5, k::f16>), .threads = 256),
        GALVANI_KERNEL("a16_expand_q6_f16_sm75", (k::a16_expand<6, k::f16>), .threads = 256),
        GALVANI_KERNEL("a16_expand_q8_f16_sm75", (k::a16_expand<8, k::f16>), .threads = 256),
        GALVANI_KERNEL("a16_expand_e2m1_f16_sm75", (k::a16_expand<k::kA16E2M1, k::f16>), .threads = 256),
        GALVANI_KERNEL("a16_expand_e4m3_f16_sm75", (k::a16_expand<k::kA16E4M3, k::f16>), .threads = 256)))
