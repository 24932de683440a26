#pragma once
// kernels/common/clock.cuh in C++: the host's clock, as of a GPU of 1 GHz.
#include <chrono>

#include "kernels/common/device.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

inline unsigned long long clock_nanoseconds() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  return static_cast<unsigned long long>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}
inline unsigned long long clock_cycles() { return clock_nanoseconds(); }

}  // namespace galvani::kernels::GALVANI_CUDA_NS
