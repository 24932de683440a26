#pragma once
// kernels/common/grid.cuh in C++.
#include "emulated_gpu/grid.h"
#include "kernels/common/device.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

inline void grid_arrive_add(unsigned* counter) { emulated::grid_arrive_add(counter); }
inline unsigned grid_poll(const unsigned* counter) { return emulated::grid_poll(counter); }

}  // namespace galvani::kernels::GALVANI_CUDA_NS
