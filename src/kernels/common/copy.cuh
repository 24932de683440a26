#pragma once
// Asynchronous copies into shared memory: cp.async (8.0) and bulk copies with mbarriers (9.0). Source: PTX ISA,
// "Data movement: asynchronous copy" and "mbarrier".
#include "kernels/common/device.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

/// 16 bytes, both addresses 16-byte aligned, past L1. From 8.0.
GALVANI_DEVICE void cp_async_16(unsigned shared, const void* global) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(global) : "memory");
#else
  wrong_arch();
#endif
}
/// `bytes` (0…16) from memory, the rest of the 16 as zeros.
GALVANI_DEVICE void cp_async_16_zfill(unsigned shared, const void* global, int bytes) {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(global), "r"(bytes) : "memory");
#else
  wrong_arch();
#endif
}
GALVANI_DEVICE void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" ::: "memory");
#else
  wrong_arch();
#endif
}
/// Until at most kPending of this thread's groups are still under way.
template <int kPending>
GALVANI_DEVICE void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
#else
  wrong_arch();
#endif
}

/// An mbarrier is 8 bytes of shared memory, 8-byte aligned; initialised by one thread, made visible by
/// fence_barrier_init and a block barrier. `parity` starts at 0 and flips with each phase.
GALVANI_DEVICE void barrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
/// Initialised barriers become visible to the copy engine and, in a cluster, to other blocks.
GALVANI_DEVICE void fence_barrier_init() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#else
  wrong_arch();
#endif
}
GALVANI_DEVICE void barrier_arrive(unsigned barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
#else
  wrong_arch();
#endif
}
/// Arrives and expects `bytes` of bulk copies in this phase.
GALVANI_DEVICE void barrier_arrive_expect(unsigned barrier, unsigned bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
#else
  wrong_arch();
#endif
}
/// Until the phase of this parity is complete.
GALVANI_DEVICE void barrier_wait(unsigned barrier, unsigned parity) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra end;\n"
      "bra again;\n"
      "end:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
#else
  wrong_arch();
#endif
}

/// Contiguous bytes (a multiple of 16, both addresses 16-byte aligned) to shared memory; the barrier counts them.
GALVANI_DEVICE void bulk_copy(unsigned shared, const void* global, unsigned bytes, unsigned barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(shared),
               "l"(global), "r"(bytes), "r"(barrier)
               : "memory");
#else
  wrong_arch();
#endif
}
/// With an L2 policy made by policy_evict_first(): data that is read once, such as weights.
GALVANI_DEVICE void bulk_copy(unsigned shared, const void* global, unsigned bytes, unsigned barrier,
                              unsigned long long policy) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(shared),
      "l"(global), "r"(bytes), "r"(barrier), "l"(policy)
      : "memory");
#else
  wrong_arch();
#endif
}
/// The box whose corner is (x, y) of what the tensor map (128 bytes, 64-byte aligned, never in local memory) describes.
GALVANI_DEVICE void tensor_copy_2d(unsigned shared, const void* map, int x, int y, unsigned barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared),
      "l"(map), "r"(x), "r"(y), "r"(barrier)
      : "memory");
#else
  wrong_arch();
#endif
}
/// The same in plane z of a map of planes.
GALVANI_DEVICE void tensor_copy_3d(unsigned shared, const void* map, int x, int y, int z, unsigned barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::
          "r"(shared),
      "l"(map), "r"(x), "r"(y), "r"(z), "r"(barrier)
      : "memory");
#else
  wrong_arch();
#endif
}
GALVANI_DEVICE unsigned long long policy_evict_first() {
  unsigned long long policy = 0;
#if __CUDA_ARCH__ >= 800
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
#else
  wrong_arch();
#endif
  return policy;
}
/// Ordinary writes to shared memory become visible to what the copy engine and wgmma read next; each writing thread
/// calls it before the barrier.
GALVANI_DEVICE void fence_async_shared() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#else
  wrong_arch();
#endif
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
