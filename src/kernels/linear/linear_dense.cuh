#pragma once
/// The plain product: one warp an output column and up to 8 rows, f32 sums. NVRTC compiles it alone.
#include "kernels/common/store.cuh"
#include "kernels/linear/linear_dense_args.h"

namespace galvani::kernels {

constexpr int kDenseRows = 8, kDenseWarps = 4;

/// Grid: (n over kDenseWarps, rows over kDenseRows); block: 32 · kDenseWarps. A row's bits depend on that row alone.
__device__ __forceinline__ void linear_dense(const LinearDenseArgs& args) {
  const int lane = threadIdx.x & 31, n = blockIdx.x * kDenseWarps + (threadIdx.x >> 5);
  const int first = blockIdx.y * kDenseRows, rows = min(kDenseRows, args.rows - first);
  if (n >= args.n) return;
  float sum[kDenseRows];
#pragma unroll
  for (int r = 0; r < kDenseRows; ++r) sum[r] = 0;
  for (int k = lane; k < args.k; k += 32) {
    const float w = load_as(args.w, static_cast<long long>(n) * args.k + k, args.w_type);
#pragma unroll
    for (int r = 0; r < kDenseRows; ++r)
      if (r < rows) sum[r] = fmaf(load_as(args.x, (first + r) * args.x_stride + k, args.x_type), w, sum[r]);
  }
#pragma unroll
  for (int r = 0; r < kDenseRows; ++r) {
    const float total = warp_sum(sum[r]);
    if (lane == 0 && r < rows) args.y[(first + r) * args.y_stride + n] = total;
  }
}

}  // namespace galvani::kernels
