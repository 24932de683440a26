#pragma once
// Code streams as a checkpoint has them, or synthetic ones, to A16: one warp a unit. Runs beside the copies of an
// upload; reads each word a few times through L1, writes each byte once.
#include "kernels/common/device.cuh"
#include "kernels/qmatmul/a16_pack_lane.h"

namespace galvani::kernels::GALVANI_CUDA_NS {

constexpr int kPackWarps = 8;

/// Scale or bias `i` of `value_bytes` bytes.
GALVANI_DEVICE unsigned pair_value(const void* values, long long i, int value_bytes) {
  return value_bytes == 4 ? static_cast<const unsigned*>(values)[i] : static_cast<const unsigned short*>(values)[i];
}

template <int kBits>
__global__ void __launch_bounds__(kPackWarps* kWarp) a16_pack(const A16PackArgs args) {
  const long long index = static_cast<long long>(blockIdx.x) * kPackWarps + threadIdx.x / kWarp;
  if (index >= static_cast<long long>(args.row_tiles) * args.units) return;
  const int lane = lane_id(), tile = static_cast<int>(index / args.units), u = static_cast<int>(index % args.units);
  unsigned char* const unit = args.out + index * args.unit_bytes;
  unsigned words[kBits];
  a16_lane_words<kBits>(words, args, tile, u, lane);
#pragma unroll
  for (int w = 0; w < kBits; ++w) *reinterpret_cast<unsigned*>(unit + a16_word_at(kBits, w, lane)) = words[w];
  unsigned char* const pairs = unit + a16_word_bytes(kBits);
  for (int p = lane; p < kA16Rows * args.subgroups; p += kWarp) {
    const long long from = a16_pair_source(args, tile, u, p);
    unsigned scale = 0, bias = 0;
    if (from >= 0) {
      const bool made = args.codes == nullptr;
      scale = made ? args.synthetic.scale : pair_value(args.scales, from, args.value_bytes);
      bias = made ? args.synthetic.bias : pair_value(args.biases, from, args.value_bytes);
    }
    if (args.value_bytes == 4) {
      reinterpret_cast<unsigned*>(pairs)[2 * p] = scale;
      reinterpret_cast<unsigned*>(pairs)[2 * p + 1] = bias;
    } else {
      reinterpret_cast<unsigned*>(pairs)[p] = scale | bias << 16;
    }
  }
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
