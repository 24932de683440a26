#pragma once
/// Device memory for State, and the arena that activations come from.
#include <map>
#include <vector>

#include "cuda/memory.h"
#include "exec/memory.h"

namespace galvani::exec {

/// Memory (keys, values, slots) on a GPU. Copies and zeroing are in the order of the stream.
class CudaMemory final : public Memory {
 public:
  explicit CudaMemory(cuda::Stream& stream) : stream_(stream) {}
  Result<std::byte*> allocate(size_t bytes, const char* purpose) override;
  void release(std::byte* memory) noexcept override;
  void copy(std::byte* to, const std::byte* from, size_t bytes) override;
  void zero(std::byte* memory, size_t bytes) override;
  /// First error of copy() and zero(), which have no way to return one.
  const Status& status() const { return status_; }

 private:
  cuda::Stream& stream_;
  std::map<std::byte*, cuda::DeviceBuffer> buffers_;
  Status status_;
};

/// A bump allocator over device blocks that are only ever added, so that equal sequences of calls give equal addresses:
/// captured graphs rely on it.
class DeviceArena {
 public:
  DeviceArena(cuda::CudaDevice& device, const char* tag) : device_(device), tag_(tag) {}
  /// 256-byte aligned. Takes a new block when the ones there are full; never while `fixed`.
  Result<void*> allocate(size_t bytes, bool fixed);
  void reset() { block_ = offset_ = 0; }
  size_t capacity() const;

 private:
  cuda::CudaDevice& device_;
  const char* tag_;
  std::vector<cuda::DeviceBuffer> blocks_;
  size_t block_ = 0, offset_ = 0;
};

}  // namespace galvani::exec
