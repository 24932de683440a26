#pragma once
// Reads memory once and adds its words: the rate that every kernel bound by memory is compared with.
//   sums[block] = Σ of the block's 32-bit words, modulo 2^32.
// Each thread has eight 16-byte loads under way. Bytes moved: 16 · vectors; no other traffic to speak of.
#include "kernels/common/device.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

constexpr int kReadThreads = 512, kReadUnroll = 8;

__global__ void __launch_bounds__(kReadThreads)
    read_sweep_sm70_kernel(const uint4* __restrict__ data, unsigned* sums, long long vectors) {
  const long long stride = static_cast<long long>(gridDim.x) * kReadThreads;
  long long i = static_cast<long long>(blockIdx.x) * kReadThreads + threadIdx.x;
  unsigned sum = 0;
  for (; i + (kReadUnroll - 1) * stride < vectors; i += kReadUnroll * stride) {
    uint4 v[kReadUnroll];
#pragma unroll
    for (int u = 0; u < kReadUnroll; ++u) v[u] = load_once(data + i + u * stride);
#pragma unroll
    for (int u = 0; u < kReadUnroll; ++u) sum += v[u].x + v[u].y + v[u].z + v[u].w;
  }
  for (; i < vectors; i += stride) {
    const uint4 v = load_once(data + i);
    sum += v.x + v.y + v.z + v.w;
  }
  __shared__ unsigned warps[kReadThreads / kWarp];
#pragma unroll
  for (int step = kWarp / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kFullMask, sum, step);
  if (lane_id() == 0) warps[threadIdx.x / kWarp] = sum;
  __syncthreads();
  if (threadIdx.x == 0) {
    unsigned total = 0;
    for (int w = 0; w < kReadThreads / kWarp; ++w) total += warps[w];
    sums[blockIdx.x] = total;
  }
}

/// words[i] = a hash of (seed, i): data that no compression or power saving makes faster. For f16 and bf16 every second
/// bit of the exponent is kept clear, so that all values are finite and near 1 in size.
__global__ void __launch_bounds__(256)
    random_fill_sm70_kernel(unsigned* words, long long count, unsigned seed, unsigned mask, unsigned set) {
  const long long stride = static_cast<long long>(gridDim.x) * 256;
  for (long long i = static_cast<long long>(blockIdx.x) * 256 + threadIdx.x; i < count; i += stride) {
    // Finaliser of MurmurHash3, which mixes every bit into every other.
    unsigned h = static_cast<unsigned>(i) * 0x9e3779b9u + seed + static_cast<unsigned>(i >> 32);
    h = (h ^ (h >> 16)) * 0x85ebca6bu;
    h = (h ^ (h >> 13)) * 0xc2b2ae35u;
    h ^= h >> 16;
    words[i] = (h & mask) | set;
  }
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
