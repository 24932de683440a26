#pragma once
// kernels/common/copy.cuh in C++.
#include "emulated_gpu/tensor_map.h"
#include "kernels/common/device.cuh"

namespace galvani::kernels::GALVANI_CUDA_NS {

inline void cp_async_16_zfill([[maybe_unused]] unsigned shared, [[maybe_unused]] const void* global,
                              [[maybe_unused]] int bytes) {
#if __CUDA_ARCH__ >= 800
  emulated::async_copy(shared, global, bytes);
#else
  wrong_arch();
#endif
}
inline void cp_async_16(unsigned shared, const void* global) { cp_async_16_zfill(shared, global, 16); }
inline void cp_async_commit() {
#if __CUDA_ARCH__ >= 800
  emulated::async_commit();
#else
  wrong_arch();
#endif
}
template <int kPending>
void cp_async_wait() {
#if __CUDA_ARCH__ >= 800
  emulated::async_wait(kPending);
#else
  wrong_arch();
#endif
}

inline void barrier_init(unsigned barrier, int arrivals) {
  if (barrier % 8 != 0) emulated::fault("mbarrier.init: the address is not a multiple of 8");
  emulated::mbarrier_init(barrier, arrivals);
}
#if __CUDA_ARCH__ >= 900
inline void fence_barrier_init() {}
inline void barrier_arrive(unsigned barrier) { emulated::mbarrier_arrive(barrier, 0); }
inline void barrier_arrive_expect(unsigned barrier, unsigned bytes) { emulated::mbarrier_arrive(barrier, bytes); }
inline void barrier_wait(unsigned barrier, unsigned parity) { emulated::mbarrier_wait(barrier, parity); }
inline void bulk_copy(unsigned shared, const void* global, unsigned bytes, unsigned barrier) {
  if (shared % 16 != 0 || reinterpret_cast<uintptr_t>(global) % 16 != 0 || bytes % 16 != 0)
    emulated::fault("cp.async.bulk: addresses and size must be multiples of 16");
  void* const to = emulated::shared_pointer(shared, bytes);
  emulated::mbarrier_copy(barrier, bytes, [=] { std::memcpy(to, global, bytes); });
}
inline void bulk_copy(unsigned shared, const void* global, unsigned bytes, unsigned barrier, unsigned long long) {
  bulk_copy(shared, global, bytes, barrier);
}
inline void tensor_copy(int rank, unsigned shared, const void* map, int x, int y, int z, unsigned barrier) {
  emulated::TensorMap m;
  std::memcpy(&m, map, sizeof(m));
  if (m.magic != emulated::TensorMap::kMagic) emulated::fault("cp.async.bulk.tensor: this is no tensor map");
  if (rank != (m.planes > 0 ? 3 : 2)) emulated::fault("cp.async.bulk.tensor: the map has another rank");
  if (shared % 1024 != 0) emulated::fault("cp.async.bulk.tensor: the swizzled tile is not 1024-byte aligned");
  if (z < 0 || (rank == 3 && z >= m.planes)) emulated::fault("cp.async.bulk.tensor: no such plane");
  const unsigned bytes = static_cast<unsigned>(m.box_rows) * 128;
  auto* const to = static_cast<char*>(emulated::shared_pointer(shared, bytes));
  emulated::mbarrier_copy(barrier, bytes, [=] {
    for (int r = 0; r < m.box_rows; ++r)
      for (int c = 0; c < 64; ++c) {
        const int64_t row = y + r, col = x + c;
        char* const at = to + r * 128 + ((c / 8) ^ (r % 8)) * 16 + c % 8 * 2;
        if (row >= 0 && row < m.rows && col >= 0 && col < m.cols)
          std::memcpy(at, m.data + (z * m.plane_stride + row * m.stride + col) * 2, 2);
        else
          std::memset(at, 0, 2);
      }
  });
}
inline void tensor_copy_2d(unsigned shared, const void* map, int x, int y, unsigned barrier) {
  tensor_copy(2, shared, map, x, y, 0, barrier);
}
inline void tensor_copy_3d(unsigned shared, const void* map, int x, int y, int z, unsigned barrier) {
  tensor_copy(3, shared, map, x, y, z, barrier);
}
inline void fence_async_shared() {}
#else
inline void fence_barrier_init() { wrong_arch(); }
inline void barrier_arrive(unsigned) { wrong_arch(); }
inline void barrier_arrive_expect(unsigned, unsigned) { wrong_arch(); }
inline void barrier_wait(unsigned, unsigned) { wrong_arch(); }
inline void bulk_copy(unsigned, const void*, unsigned, unsigned) { wrong_arch(); }
inline void bulk_copy(unsigned, const void*, unsigned, unsigned, unsigned long long) { wrong_arch(); }
inline void tensor_copy_2d(unsigned, const void*, int, int, unsigned) { wrong_arch(); }
inline void tensor_copy_3d(unsigned, const void*, int, int, int, unsigned) { wrong_arch(); }
inline void fence_async_shared() { wrong_arch(); }
#endif
inline unsigned long long policy_evict_first() {
#if __CUDA_ARCH__ < 800
  wrong_arch();
#endif
  return 0;
}

}  // namespace galvani::kernels::GALVANI_CUDA_NS
