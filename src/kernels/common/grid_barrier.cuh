#pragma once
// A barrier over all blocks of a cooperative launch (LaunchConfig::cooperative).
#include "kernels/common/grid.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// `counter`: a word of global memory that is zero when the kernel begins. Set it to zero before every launch
/// (Stream::fill, a node of its own in a graph): a launch that was given up half-way leaves any value.
struct GridBarrier {
  unsigned* counter;
  unsigned target = 0;

  /// Called by all threads of all `blocks` blocks, equally often. What was written to global memory before is seen
  /// after it, as grid.cuh says. The count may wrap.
  GALVANI_DEVICE void sync(unsigned blocks) {
    target += blocks;
    __syncthreads();
    if (threadIdx.x == 0 && threadIdx.y == 0 && threadIdx.z == 0) {
      grid_arrive_add(counter);
      while (static_cast<int>(grid_poll(counter) - target) < 0) {
      }
    }
    __syncthreads();
  }
};

}  // namespace galvani::kernels::GALVANI_CUDA_NS
