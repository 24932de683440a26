// 9 to 64 tokens by wgmma with x streamed beside the weights: 9.0a. A kernel for each type of the scales.
#include "cuda/kernel_table.h"
#include "kernels/qmatmul/qmatmul_stream.cuh"

namespace k = galvani::kernels::GALVANI_CUDA_NS;
using galvani::kernels::A16Scale;

#define STREAM(bits, type, tokens, name, scale)                                      \
  GALVANI_KERNEL("qmatmul_stream_q" #bits "_" #type "_t" #tokens "_" #name "_sm90a", \
                 (k::qmatmul_stream<bits, k::type, tokens, A16Scale::scale>), .threads = 544)
// Groups of 64 and more, with scales of x's type: what files mostly hold.
#define STREAM_G64(bits)                                              \
  GALVANI_KERNEL("qmatmul_stream_q" #bits "_bf16_t64_bf16_g64_sm90a", \
                 (k::qmatmul_stream<bits, k::bf16, 64, A16Scale::kBF16, 1>), .threads = 544)
#define STREAM_SCALES(bits, type, tokens) \
  STREAM(bits, type, tokens, bf16, kBF16), STREAM(bits, type, tokens, f16, kF16), STREAM(bits, type, tokens, f32, kF32)
#define STREAM_BITS(bits) \
  STREAM_SCALES(bits, bf16, 16), STREAM_SCALES(bits, bf16, 64), STREAM_SCALES(bits, f16, 64), STREAM_G64(bits)

GALVANI_KERNEL_TABLE(qmatmul_stream_sm90a, STREAM_BITS(2), STREAM_BITS(3), STREAM_BITS(4), STREAM_BITS(5),
                     STREAM_BITS(6), STREAM_BITS(8), STREAM(4, bf16, 32, bf16, kBF16))
