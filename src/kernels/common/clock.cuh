#pragma once
// The two clocks that a thread can read: its multiprocessor's cycles, and the GPU's nanoseconds, whose ticks are 32 ns
// to a microsecond apart.
#include "kernels/common/device.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

GALVANI_DEVICE unsigned long long clock_cycles() {
  unsigned long long cycles;
  asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
  return cycles;
}
GALVANI_DEVICE unsigned long long clock_nanoseconds() {
  unsigned long long nanoseconds;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds)::"memory");
  return nanoseconds;
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
