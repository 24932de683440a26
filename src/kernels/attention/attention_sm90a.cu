// Prefill with wgmma, 9.0a alone.
#include "cuda/kernel_table.h"
#include "kernels/attention/attention_wgmma.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS::attn {
namespace {

template <typename T, int D>
__global__ void __launch_bounds__(kWgmmaThreads, 1)
    wgmma_sm90a(const __grid_constant__ AttentionTilesArgs args, const __grid_constant__ TensorMap k,
                const __grid_constant__ TensorMap v) {
  release_next();
  attention_wgmma<T, D>(args, k, v);
}

}  // namespace
}  // namespace galvani::kernels::GALVANI_CUDA_NS::attn

namespace attn = galvani::kernels::GALVANI_CUDA_NS::attn;
GALVANI_KERNEL_TABLE(
    attention_sm90a,
    GALVANI_KERNEL("attention_wgmma_bf16_d128_sm90a", (attn::wgmma_sm90a<__nv_bfloat16, 128>), .threads = 384),
    GALVANI_MORE_KERNELS(
        GALVANI_KERNEL("attention_wgmma_bf16_d64_sm90a", (attn::wgmma_sm90a<__nv_bfloat16, 64>), .threads = 384),
        GALVANI_KERNEL("attention_wgmma_bf16_d256_sm90a", (attn::wgmma_sm90a<__nv_bfloat16, 256>), .threads = 384),
        GALVANI_KERNEL("attention_wgmma_f16_d64_sm90a", (attn::wgmma_sm90a<__half, 64>), .threads = 384),
        GALVANI_KERNEL("attention_wgmma_f16_d128_sm90a", (attn::wgmma_sm90a<__half, 128>), .threads = 384),
        GALVANI_KERNEL("attention_wgmma_f16_d256_sm90a", (attn::wgmma_sm90a<__half, 256>), .threads = 384)))
