#pragma once
/// RMS norms of f32 rows, with the residual add before them. One block a row, the row in shared memory between passes.
/// NVRTC compiles it alone.
#include "kernels/common/norm_weight.cuh"
#include "kernels/common/store.cuh"
#include "kernels/norm/norm_cuda_args.h"

namespace galvani::kernels {

/// Grid: rows; block: any multiple of 32 up to 1024 (results depend on it, so choose it by dim alone). Dynamic shared
/// memory: dim floats.
__device__ __forceinline__ void rms_norm_rows(const NormArgs& args) {
  GALVANI_DYNAMIC_SHARED(float, norm_row, 4);
  __shared__ float reduce[33];
  const long long r = blockIdx.x, from = args.gather != nullptr ? args.gather[r] : r;
  float* x = args.x + from * args.x_stride;
  const float dim = static_cast<float>(args.dim);
  if (args.add != nullptr) {
    const float* add = args.add + r * args.add_stride;
    float squares = 0;
    for (int i = threadIdx.x; i < args.dim; i += blockDim.x) {
      const float z = add[i] + (args.bias != nullptr ? args.bias[i] : 0.0f);
      norm_row[i] = z;
      squares += z * z;
    }
    float inverse = 1;
    if (args.post) inverse = 1.0f / sqrtf(block_sum(squares, reduce) / dim + args.post_norm.eps);
    for (int i = threadIdx.x; i < args.dim; i += blockDim.x) {  // its own elements only: no barrier
      const float z = args.post ? norm_row[i] * inverse * norm_weight(args.post_norm, i) : norm_row[i];
      const float sum = x[i] + z;
      x[i] = sum;
      norm_row[i] = sum;
    }
  } else {
    for (int i = threadIdx.x; i < args.dim; i += blockDim.x) norm_row[i] = x[i];
  }
  if (args.out == nullptr) return;
  float inverse = 1;
  if (args.normalise) {
    float squares = 0;
    for (int i = threadIdx.x; i < args.dim; i += blockDim.x) squares += norm_row[i] * norm_row[i];
    inverse = 1.0f / sqrtf(block_sum(squares, reduce) / dim + args.norm.eps);
  }
  for (int i = threadIdx.x; i < args.dim; i += blockDim.x) {
    const float y = args.normalise ? norm_row[i] * inverse * norm_weight(args.norm, i) : norm_row[i];
    store_as(args.out, r * args.out_stride + i, y, args.out_type);
  }
}

}  // namespace galvani::kernels
