#pragma once
// kernels/common/grid.cuh in C++.
#include <atomic>

#include "emulated_gpu/grid.h"
#include "kernels/common/device.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

inline void grid_arrive_add(unsigned* counter) { emulated::grid_arrive_add(counter); }
inline unsigned grid_poll(const unsigned* counter) { return emulated::grid_poll(counter); }
// In order, as those above are: nobody here sees what a missing fence lets through.
inline void grid_arrive_relaxed(unsigned* counter) { emulated::grid_arrive_add(counter); }
inline unsigned grid_poll_relaxed(const unsigned* counter) { return emulated::grid_poll(counter); }

inline void store_relaxed(unsigned* to, unsigned value) {
  std::atomic_ref<unsigned>(*to).store(value, std::memory_order_relaxed);
}
inline unsigned load_relaxed(const unsigned* from) {
  return std::atomic_ref<unsigned>(*const_cast<unsigned*>(from)).load(std::memory_order_relaxed);
}
inline uint4 load_relaxed(const uint4* from) {
  return {load_relaxed(&from->x), load_relaxed(&from->y), load_relaxed(&from->z), load_relaxed(&from->w)};
}

inline void look_again(const void* word) { (void)emulated::grid_poll(static_cast<const unsigned*>(word)); }

}  // namespace galvani::kernels::GALVANI_CUDA_NS
