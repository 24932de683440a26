#pragma once
// kernels/common/cluster.cuh in C++.
#include "kernels/common/device.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

inline void cluster_sync() {
#if __CUDA_ARCH__ >= 900
  emulated::cluster_barrier();
#else
  wrong_arch();
#endif
}
inline float load_cluster_f32(unsigned shared, unsigned rank) {
#if __CUDA_ARCH__ >= 900
  float value;
  std::memcpy(&value, emulated::cluster_pointer(shared, rank, sizeof(value)), sizeof(value));
  return value;
#else
  wrong_arch();
#endif
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
