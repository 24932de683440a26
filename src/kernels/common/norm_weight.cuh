#pragma once
/// The weight of a norm, as the kernels that norm share it. NVRTC compiles it alone.
#include "kernels/norm/norm_cuda_args.h"

namespace galvani::kernels {

__device__ __forceinline__ float norm_weight(const NormWeights& n, int i) {
  return n.w == nullptr ? 1.0f : n.w[i] + (n.plus_one ? 1.0f : 0.0f);
}

}  // namespace galvani::kernels
