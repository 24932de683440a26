#pragma once
// Clusters of blocks (9.0). Source: PTX ISA, "barrier.cluster", "mapa", "ld.shared::cluster".
#include "kernels/common/device.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// All threads of all blocks of the cluster; what they wrote to shared memory before is visible to the others after.
GALVANI_DEVICE void cluster_sync() {
#if __CUDA_ARCH__ >= 900
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
#else
  wrong_arch();
#endif
}
/// A float at `shared`, an address of this block's own window, in block `rank` of the cluster.
GALVANI_DEVICE float load_cluster_f32(unsigned shared, unsigned rank) {
  float value = 0.0f;
#if __CUDA_ARCH__ >= 900
  asm volatile("{\n.reg .b32 remote;\nmapa.shared::cluster.u32 remote, %1, %2;\nld.shared::cluster.f32 %0, [remote];\n}"
               : "=f"(value)
               : "r"(shared), "r"(rank)
               : "memory");
#else
  wrong_arch();
#endif
  return value;
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
