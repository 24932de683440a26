// Attention kernels for bf16 pages on matrix instructions.
#include "cuda/kernel_table.h"
#include "kernels/attention/attention_decode.cuh"
#include "kernels/attention/attention_prefill.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS::attn {
namespace {

template <int D>
__global__ void __launch_bounds__(32 * kDecodeWarps, decode_blocks_per_sm<D>())
    decode_bf16(const __grid_constant__ AttentionRowsArgs args) {
  attention_decode<__nv_bfloat16, D, D>(args);
}
template <int D, int kWarps, int kTiles>
__global__ void __launch_bounds__(32 * kWarps) tiles_bf16(const __grid_constant__ AttentionTilesArgs args) {
  start_dependent();
  attention_prefill<__nv_bfloat16, D, kWarps, kTiles>(args);
}

}  // namespace
}  // namespace galvani::kernels::GALVANI_CUDA_NS::attn

namespace attn = galvani::kernels::GALVANI_CUDA_NS::attn;
GALVANI_KERNEL_TABLE(
    attention_sm80, GALVANI_KERNEL("attention_decode_bf16_d128_sm80", attn::decode_bf16<128>, .threads = 128),
    GALVANI_KERNEL("attention_tiles_bf16_d128_sm80", (attn::tiles_bf16<128, 4, 2>), .threads = 128),
    GALVANI_MORE_KERNELS(
        GALVANI_KERNEL("attention_decode_bf16_d64_sm80", attn::decode_bf16<64>, .threads = 128),
        GALVANI_KERNEL("attention_decode_bf16_d256_sm80", attn::decode_bf16<256>, .threads = 128),
        GALVANI_KERNEL("attention_tiles_bf16_d64_sm80", (attn::tiles_bf16<64, 4, 2>), .threads = 128),
        GALVANI_KERNEL("attention_tiles_bf16_d64_half_sm80", (attn::tiles_bf16<64, 4, 1>), .threads = 128),
        GALVANI_KERNEL("attention_tiles_bf16_d128_half_sm80", (attn::tiles_bf16<128, 4, 1>), .threads = 128),
        GALVANI_KERNEL("attention_tiles_bf16_d256_sm80", (attn::tiles_bf16<256, 8, 1>), .threads = 256),
        GALVANI_KERNEL("attention_tiles_bf16_d256_half_sm80", (attn::tiles_bf16<256, 4, 1>), .threads = 128)))
