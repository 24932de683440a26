#pragma once
/// A tensor that somebody else owns: contiguous, row-major, read-only bytes of a mapped file or a buffer.
#include <cstddef>
#include <span>

#include "core/dtype.h"
#include "core/shape.h"

namespace galvani {

struct TensorView {
  std::span<const std::byte> bytes;  ///< exactly elements × dtype_bytes; no alignment is promised
  DType dtype = DType::kF32;
  Shape shape;
};

}  // namespace galvani
