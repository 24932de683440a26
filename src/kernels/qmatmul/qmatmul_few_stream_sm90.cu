// Few tokens, x streamed beside the weights: 9.0 and newer. One kernel for every type of the scales.
#include "cuda/kernel_table.h"
#include "kernels/qmatmul/qmatmul_stream.cuh"

namespace k = galvani::kernels::GALVANI_CUDA_NS;
using galvani::kernels::A16Scale;

GALVANI_KERNEL_TABLE(
    qmatmul_few_stream_sm90,
    GALVANI_KERNEL("qmatmul_few_stream_q4_bf16_sm90", (k::qmatmul_stream<4, k::bf16, 8, A16Scale::kBF16, true>),
                   .threads = 544),
    GALVANI_MORE_KERNELS(GALVANI_KERNEL("qmatmul_few_stream_q4_f16_sm90",
                                        (k::qmatmul_stream<4, k::f16, 8, A16Scale::kBF16, true>), .threads = 544),
                         GALVANI_KERNEL("qmatmul_few_stream_q2_bf16_sm90",
                                        (k::qmatmul_stream<2, k::bf16, 8, A16Scale::kBF16, true>), .threads = 544),
                         GALVANI_KERNEL("qmatmul_few_stream_q2_f16_sm90",
                                        (k::qmatmul_stream<2, k::f16, 8, A16Scale::kBF16, true>), .threads = 544),
                         GALVANI_KERNEL("qmatmul_few_stream_q3_bf16_sm90",
                                        (k::qmatmul_stream<3, k::bf16, 8, A16Scale::kBF16, true>), .threads = 544),
                         GALVANI_KERNEL("qmatmul_few_stream_q3_f16_sm90",
                                        (k::qmatmul_stream<3, k::f16, 8, A16Scale::kBF16, true>), .threads = 544),
                         GALVANI_KERNEL("qmatmul_few_stream_q5_bf16_sm90",
                                        (k::qmatmul_stream<5, k::bf16, 8, A16Scale::kBF16, true>), .threads = 544),
                         GALVANI_KERNEL("qmatmul_few_stream_q5_f16_sm90",
                                        (k::qmatmul_stream<5, k::f16, 8, A16Scale::kBF16, true>), .threads = 544),
                         GALVANI_KERNEL("qmatmul_few_stream_q6_bf16_sm90",
                                        (k::qmatmul_stream<6, k::bf16, 8, A16Scale::kBF16, true>), .threads = 544),
                         GALVANI_KERNEL("qmatmul_few_stream_q6_f16_sm90",
                                        (k::qmatmul_stream<6, k::f16, 8, A16Scale::kBF16, true>), .threads = 544),
                         GALVANI_KERNEL("qmatmul_few_stream_q8_bf16_sm90",
                                        (k::qmatmul_stream<8, k::bf16, 8, A16Scale::kBF16, true>), .threads = 544),
                         GALVANI_KERNEL("qmatmul_few_stream_q8_f16_sm90",
                                        (k::qmatmul_stream<8, k::f16, 8, A16Scale::kBF16, true>), .threads = 544)))
