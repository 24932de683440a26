#pragma once
/// What the emulated build keeps in the 128 bytes of a tensor map.
#include <cstdint>

namespace galvani::emulated {

struct TensorMap {
  const char* data;
  int64_t planes, plane_stride;  ///< of a map of two dimensions: 0, 0
  int64_t rows, cols;            ///< of 16-bit elements
  int64_t stride;                ///< elements, as plane_stride
  int box_rows;                  ///< boxes are box_rows × 64 columns of a plane, 128-byte-swizzled in shared memory
  uint64_t magic;                ///< kMagic, so that other bytes are recognised
  static constexpr uint64_t kMagic = 0x67616c76616e6931;
};

}  // namespace galvani::emulated
