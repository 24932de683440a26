#pragma once
#include <cstdint>

namespace galvani::kernels {

/// Which form of a kernel takes a launch: few rows are about latency, many about bytes under way. Both give the same
/// bits. kAuto: by the number of rows, and few wherever many's conditions do not hold.
enum class RowsForm { kAuto, kFew, kMany };

/// Whether `address` is at a multiple of `bytes`: what the many-row forms ask of their vectors.
inline bool aligned(const void* address, int bytes) {
  return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(bytes) == 0;
}

}  // namespace galvani::kernels
