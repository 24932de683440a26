#pragma once
/// Where a backend keeps memory that outlives a step (KV pages, recurrent slots). Pointers mean something to the
/// backend's own kernels only.
#include <cstddef>

#include "galvani/error.h"

namespace galvani::exec {

class Memory {
 public:
  virtual ~Memory() = default;
  /// `bytes` of uninitialised memory; the error says how much was asked for and what to lower.
  virtual Result<std::byte*> allocate(size_t bytes, const char* purpose) = 0;
  virtual void release(std::byte* memory) noexcept = 0;
  virtual void copy(std::byte* to, const std::byte* from, size_t bytes) = 0;
  virtual void zero(std::byte* memory, size_t bytes) = 0;
};

/// Host memory; large blocks are committed by the operating system only when touched.
Memory& host_memory();

}  // namespace galvani::exec
