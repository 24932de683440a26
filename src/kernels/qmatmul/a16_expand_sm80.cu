// A16 to a dense bf16 matrix.
#include "cuda/kernel_table.h"
#include "kernels/qmatmul/a16_expand.cuh"

namespace k = galvani::kernels::GALVANI_CUDA_NS;

GALVANI_KERNEL_TABLE(
    a16_expand_sm80, GALVANI_KERNEL("a16_expand_q4_bf16_sm80", (k::a16_expand<4, k::bf16>), .threads = 256),
    GALVANI_MORE_KERNELS(
        GALVANI_KERNEL("a16_expand_q2_bf16_sm80", (k::a16_expand<2, k::bf16>), .threads = 256),
        GALVANI_KERNEL("a16_expand_q3_bf16_sm80", (k::a16_expand<3, k::bf16>), .threads = 256),
        GALVANI_KERNEL("a16_expand_q5_bf16_sm80", (k::a16_expand<5, k::bf16>), .threads = 256),
        GALVANI_KERNEL("a16_expand_q6_bf16_sm80", (k::a16_expand<6, k::bf16>), .threads = 256),
        GALVANI_KERNEL("a16_expand_q8_bf16_sm80", (k::a16_expand<8, k::bf16>), .threads = 256),
        GALVANI_KERNEL("a16_expand_e2m1_bf16_sm80", (k::a16_expand<k::kA16E2M1, k::bf16>), .threads = 256),
        GALVANI_KERNEL("a16_expand_e4m3_bf16_sm80", (k::a16_expand<k::kA16E4M3, k::bf16>), .threads = 256)))
