// Attention kernels that every part from 7.5 on runs: f16 pages on matrix instructions, all types without them.
#include "cuda/kernel_table.h"
#include "kernels/attention/attention_decode.cuh"
#include "kernels/attention/attention_prefill.cuh"
#include "kernels/attention/attention_simt.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS::attn {
namespace {

template <int D>
__global__ void __launch_bounds__(32 * kDecodeWarps, decode_blocks_per_sm<D>())
    decode_f16(const __grid_constant__ AttentionRowsArgs args) {
  attention_decode<__half, D, D>(args);
}
template <int D, int kWarps, int kTiles>
__global__ void __launch_bounds__(32 * kWarps) tiles_f16(const __grid_constant__ AttentionTilesArgs args) {
  start_dependent();
  attention_prefill<__half, D, kWarps, kTiles>(args);
}
template <typename T>
__global__ void __launch_bounds__(32 * kSimtWarps) simt(const __grid_constant__ AttentionRowsArgs args) {
  start_dependent();
  attention_simt<T>(args);
}
__global__ void __launch_bounds__(kMergeThreads) merge(const __grid_constant__ AttentionRowsArgs args) {
  release_next();
  attention_merge(args);
}

}  // namespace
}  // namespace galvani::kernels::GALVANI_CUDA_NS::attn

namespace attn = galvani::kernels::GALVANI_CUDA_NS::attn;
GALVANI_KERNEL_TABLE(
    attention_sm75, GALVANI_KERNEL("attention_decode_f16_d128_sm75", attn::decode_f16<128>, .threads = 128),
    GALVANI_KERNEL("attention_merge_sm75", attn::merge, .threads = 256),
    GALVANI_KERNEL("attention_tiles_f16_d128_sm75", (attn::tiles_f16<128, 4, 2>), .threads = 128),
    GALVANI_KERNEL("attention_simt_f32_sm75", attn::simt<float>, .threads = 128),
    GALVANI_MORE_KERNELS(
        GALVANI_KERNEL("attention_decode_f16_d64_sm75", attn::decode_f16<64>, .threads = 128),
        GALVANI_KERNEL("attention_decode_f16_d256_sm75", attn::decode_f16<256>, .threads = 128),
        GALVANI_KERNEL("attention_tiles_f16_d64_sm75", (attn::tiles_f16<64, 4, 2>), .threads = 128),
        GALVANI_KERNEL("attention_tiles_f16_d64_half_sm75", (attn::tiles_f16<64, 4, 1>), .threads = 128),
        GALVANI_KERNEL("attention_tiles_f16_d128_half_sm75", (attn::tiles_f16<128, 4, 1>), .threads = 128),
        GALVANI_KERNEL("attention_tiles_f16_d256_sm75", (attn::tiles_f16<256, 8, 1>), .threads = 256),
        GALVANI_KERNEL("attention_tiles_f16_d256_half_sm75", (attn::tiles_f16<256, 4, 1>), .threads = 128),
        GALVANI_KERNEL("attention_simt_f16_sm75", attn::simt<__half>, .threads = 128),
        GALVANI_KERNEL("attention_simt_bf16_sm75", attn::simt<__nv_bfloat16>, .threads = 128)))
