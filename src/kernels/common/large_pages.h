#pragma once
/// Memory for weights, on large pages where the system grants them. A decode step streams every weight once; with 4 KB
/// pages the walks of the page table halve the rate in a virtual machine (measured: 26 against 53 GB/s).
#include <cstddef>
#include <memory>

namespace galvani::kernels {

/// Bytes that a chunk of large pages lends: 64-byte aligned, uninitialised, given back with the last copy. Small
/// requests share chunks, so that they too lie on large pages.
class LargePageBuffer {
 public:
  LargePageBuffer() = default;
  explicit LargePageBuffer(size_t bytes);
  std::byte* data() noexcept { return data_; }
  const std::byte* data() const noexcept { return data_; }
  size_t size() const noexcept { return size_; }

 private:
  std::shared_ptr<std::byte> chunk_;
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace galvani::kernels
