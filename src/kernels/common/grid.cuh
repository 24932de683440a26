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

/// The same without an order: what was written before it may be seen later.
GALVANI_DEVICE void grid_arrive_relaxed(unsigned* counter) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
GALVANI_DEVICE unsigned grid_poll_relaxed(const unsigned* counter) {
  unsigned value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(counter) : "memory");
  return value;
}

/// Words that blocks of one launch write and read at the same time: each is seen whole, in no order with others.
GALVANI_DEVICE void store_relaxed(unsigned* to, unsigned value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value) : "memory");
}
GALVANI_DEVICE unsigned load_relaxed(const unsigned* from) { return grid_poll_relaxed(from); }
GALVANI_DEVICE uint4 load_relaxed(const uint4* from) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0,%1,%2,%3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

/// Between two looks at a word that has not come, or at the first of some.
GALVANI_DEVICE void look_again(const void*) {}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
