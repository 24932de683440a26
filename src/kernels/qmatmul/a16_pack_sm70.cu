// Packing on the device while weights are uploaded or made.
#include "cuda/kernel_table.h"
#include "kernels/qmatmul/a16_pack.cuh"

namespace k = galvani::kernels::GALVANI_CUDA_NS;

GALVANI_KERNEL_TABLE(a16_pack_sm70, GALVANI_KERNEL("a16_pack_q4_sm70", k::a16_pack<4>, .threads = 256),
                     GALVANI_MORE_KERNELS(GALVANI_KERNEL("a16_pack_q2_sm70", k::a16_pack<2>, .threads = 256),
                                          GALVANI_KERNEL("a16_pack_q3_sm70", k::a16_pack<3>, .threads = 256),
                                          GALVANI_KERNEL("a16_pack_q5_sm70", k::a16_pack<5>, .threads = 256),
                                          GALVANI_KERNEL("a16_pack_q6_sm70", k::a16_pack<6>, .threads = 256),
                                          GALVANI_KERNEL("a16_pack_q8_sm70", k::a16_pack<8>, .threads = 256)))
