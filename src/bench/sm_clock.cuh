#pragma once
// How fast a multiprocessor's clock runs right after a benchmark's kernels: a number in microseconds says little of a
// kernel that instructions limit, unless the clock is known.
#include "kernels/common/clock.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// Waits for the timer's next tick, then for the first at least `wait` nanoseconds later; out[0] = the cycles between
/// them, out[1] = the nanoseconds. One thread.
__global__ void __launch_bounds__(1) sm_clock(long long wait, unsigned long long* out) {
  unsigned long long tick = clock_nanoseconds(), now = tick;
  while (now == tick) now = clock_nanoseconds();
  const unsigned long long begin = clock_cycles(), from = now;
  unsigned long long end = begin;
  tick = now;
  while (now - from < static_cast<unsigned long long>(wait) || now == tick) {
    tick = now;
    now = clock_nanoseconds();
    end = clock_cycles();
  }
  out[0] = end - begin;
  out[1] = now - from;
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
