#pragma once
// The end of a product whose K several blocks shared (qmatmul_wgmma.cuh): y (+)= the parts' sums, in the order of the
// parts.
#include "kernels/qmatmul/qmatmul_store.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// grid: kPartsColumns columns by tokens.
template <typename T>
__global__ void __launch_bounds__(kPartsThreads) qmatmul_parts(const QmatmulPartsArgs a) {
  constexpr int kEach = kPartsColumns / kPartsThreads;
  dependency_release();
  dependency_wait();
  const int token = static_cast<int>(blockIdx.y);
  const int first = static_cast<int>(blockIdx.x) * kPartsColumns + static_cast<int>(threadIdx.x);
  float v[kMostParts][kEach];
#pragma unroll
  for (int part = 0; part < kMostParts; ++part)
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      const int n = first + i * kPartsThreads;
      v[part][i] =
          part < a.parts && n < a.p.n ? a.sums[(static_cast<long long>(part) * a.p.m + token) * a.p.n + n] : 0.0f;
    }
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int n = first + i * kPartsThreads;
    float sum = v[0][i];
#pragma unroll
    for (int part = 1; part < kMostParts; ++part) sum += v[part][i];
    if (n < a.p.n) qmatmul_store<T>(a.p, token, n, sum);
  }
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
