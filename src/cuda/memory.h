#pragma once
/// Device and pinned host memory with a tag, so that an error and a leak have a name.
#include <cstddef>
#include <memory>
#include <string>

#include "cuda/stream.h"

namespace galvani::cuda {

/// Memory of one device, 256-byte aligned. Zero bytes is an empty buffer.
class DeviceBuffer {
 public:
  /// Errors: kOutOfMemory: how much was needed, how much is free, who holds the rest, what to lower.
  static Result<DeviceBuffer> allocate(CudaDevice& device, size_t bytes, std::string tag);
  /// Bytes [at, at + bytes) of `whole`, which lives at least as long. Counted under its tag.
  static DeviceBuffer part(std::shared_ptr<DeviceBuffer> whole, size_t at, size_t bytes);
  DeviceBuffer() = default;
  ~DeviceBuffer() { reset(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t size() const { return bytes_; }
  void reset();

 private:
  CudaDevice* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
  std::string tag_;
  std::shared_ptr<DeviceBuffer> whole_;  // of a part
};

/// Page-locked host memory, which copies need to run at the full rate beside kernels. Kernels know it by the same
/// address (unified addressing); what they wrote is there after the stream was waited for.
class PinnedBuffer {
 public:
  static Result<PinnedBuffer> allocate(CudaDevice& device, size_t bytes, std::string tag);
  PinnedBuffer() = default;
  ~PinnedBuffer() { reset(); }
  PinnedBuffer(PinnedBuffer&& other) noexcept { *this = std::move(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept;

  void* data() const { return data_; }
  template <typename T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  size_t size() const { return bytes_; }
  void reset();

 private:
  CudaDevice* device_ = nullptr;
  void* data_ = nullptr;
  size_t bytes_ = 0;
};

/// Memory that is taken and given back in stream order, without stopping the device. For workspaces whose size
/// changes; everything with a plan uses one DeviceBuffer and offsets.
class MemoryPool {
 public:
  static Result<MemoryPool> create(CudaDevice& device, std::string tag);
  Result<void*> allocate(Stream& stream, size_t bytes);
  Status free(Stream& stream, void* data);

 private:
  CudaDevice* device_ = nullptr;
  std::string tag_;
  Owned<MemPoolHandle, detail::destroy_pool> handle_;
};

}  // namespace galvani::cuda
