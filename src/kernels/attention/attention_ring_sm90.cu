// Attention decode with pages by bulk copies: 9.0 and newer.
#include "cuda/kernel_table.h"
#include "kernels/attention/attention_decode_ring.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS::attn {
namespace {

template <typename T, int D, int kStages, int kBlocks>
__global__ void __launch_bounds__(32 * kDecodeWarps, kBlocks)
    decode_ring(const __grid_constant__ AttentionRowsArgs args) {
  start_dependent();
  attention_decode_ring<T, D, kStages>(args);
}

}  // namespace
}  // namespace galvani::kernels::GALVANI_CUDA_NS::attn

namespace attn = galvani::kernels::GALVANI_CUDA_NS::attn;
// Stages and blocks a multiprocessor: attention_cuda_plan.h's plan_attention_decode_ring.
GALVANI_KERNEL_TABLE(attention_ring_sm90,
                     GALVANI_KERNEL("attention_decode_ring_bf16_d128_sm90",
                                    (attn::decode_ring<__nv_bfloat16, 128, 3, 2>), .threads = 128),
                     GALVANI_MORE_KERNELS(GALVANI_KERNEL("attention_decode_ring_bf16_d64_sm90",
                                                         (attn::decode_ring<__nv_bfloat16, 64, 4, 3>), .threads = 128),
                                          GALVANI_KERNEL("attention_decode_ring_bf16_d256_sm90",
                                                         (attn::decode_ring<__nv_bfloat16, 256, 3, 1>), .threads = 128),
                                          GALVANI_KERNEL("attention_decode_ring_f16_d64_sm90",
                                                         (attn::decode_ring<__half, 64, 4, 3>), .threads = 128),
                                          GALVANI_KERNEL("attention_decode_ring_f16_d128_sm90",
                                                         (attn::decode_ring<__half, 128, 3, 2>), .threads = 128),
                                          GALVANI_KERNEL("attention_decode_ring_f16_d256_sm90",
                                                         (attn::decode_ring<__half, 256, 3, 1>), .threads = 128)))
