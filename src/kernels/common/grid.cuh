#pragma once
// Counters in global memory by which the blocks of a cooperative launch wait for each other. Source: PTX ISA, "red",
// "ld" and "Memory consistency model". What a thread, and through a block barrier its block, wrote before it arrives is
// seen after a poll that saw the arrival; by ordinary loads, never by load_once, __ldg or anything else of
// ld.global.nc.
#include "kernels/common/device.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// Adds 1.
GALVANI_DEVICE void grid_arrive_add(unsigned* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
/// For loops; only in cooperative launches, where whoever is to arrive runs.
GALVANI_DEVICE unsigned grid_poll(const unsigned* counter) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
