#pragma once
// A plain read: the ceiling that weight-bound kernels are measured against. What was read is added into one word that
// is written only for a value that does not occur, so that nothing is optimised away.
#include "kernels/common/copy.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

constexpr int kReadStages = 8, kReadChunk = 16384;

/// Bulk copies into a ring, one thread a block. dynamic shared memory: kReadStages · kReadChunk.
__global__ void __launch_bounds__(32) read_bulk(const unsigned char* data, long long bytes, unsigned* out) {
  GALVANI_DYNAMIC_SHARED(unsigned char, smem, 128);
  __shared__ __align__(8) unsigned long long full[kReadStages];
  const long long chunks = (bytes + kReadChunk - 1) / kReadChunk;
  const long long begin = chunks * blockIdx.x / gridDim.x, end = chunks * (blockIdx.x + 1) / gridDim.x;
  if (threadIdx.x != 0) return;
  for (int s = 0; s < kReadStages; ++s) barrier_init(shared_address(&full[s]), 1);
  fence_barrier_init();
  const auto fetch = [&](long long chunk, int s) {
    const long long left = bytes - chunk * kReadChunk;
    const unsigned size = static_cast<unsigned>(left < kReadChunk ? left / 16 * 16 : kReadChunk);
    barrier_arrive_expect(shared_address(&full[s]), size);
    bulk_copy(shared_address(smem + s * kReadChunk), data + chunk * kReadChunk, size, shared_address(&full[s]));
  };
  long long next = begin;
  for (int s = 0; s < kReadStages && next < end; ++s) fetch(next++, s);
  int stage = 0;
  unsigned phase = 0;
  for (long long i = begin; i < end; ++i) {
    barrier_wait(shared_address(&full[stage]), phase);
    if (next < end) fetch(next++, stage);
    if (++stage == kReadStages) stage = 0, phase ^= 1u;
  }
  if (*reinterpret_cast<unsigned*>(smem) == 0x9e3779b9u && *reinterpret_cast<unsigned*>(smem + 64) == 1u) *out = 1;
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
