#pragma once
// A plain read: the ceiling that weight-bound kernels are measured against. What was read is added into one word that
// is written only for a value that does not occur, so that nothing is optimised away.
#include "kernels/common/device.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// 16-byte loads, eight under way in each thread.
__global__ void __launch_bounds__(1024) read_plain(const unsigned char* data, long long bytes, unsigned* out) {
  constexpr int kAhead = 8;
  const uint4* p = reinterpret_cast<const uint4*>(data);
  const long long n = bytes / 16, step = static_cast<long long>(gridDim.x) * blockDim.x;
  unsigned sum = 0;
  for (long long i = static_cast<long long>(blockIdx.x) * blockDim.x + threadIdx.x; i < n; i += step * kAhead) {
#pragma unroll
    for (int j = 0; j < kAhead; ++j) {
      if (i + j * step >= n) continue;
      const uint4 v = __ldcs(p + i + j * step);
      sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
  }
  if (sum == 0x9e3779b9u) *out = sum;
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
