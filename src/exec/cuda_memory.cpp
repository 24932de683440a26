#include "exec/cuda_memory.h"

#include <algorithm>

#include "core/error.h"

namespace galvani::exec {

Result<std::byte*> CudaMemory::allocate(size_t bytes, const char* purpose) {
  GALVANI_TRY(auto buffer, cuda::DeviceBuffer::allocate(stream_.device(), std::max<size_t>(bytes, 256), purpose));
  auto* memory = buffer.as<std::byte>();
  buffers_.emplace(memory, std::move(buffer));
  return memory;
}

void CudaMemory::release(std::byte* memory) noexcept {
  (void)stream_.synchronize();  // a kernel may still be writing there
  buffers_.erase(memory);
}

void CudaMemory::copy(std::byte* to, const std::byte* from, size_t bytes) {
  if (auto done = stream_.on_device(to, from, bytes); !done && status_) status_ = done;
}

void CudaMemory::zero(std::byte* memory, size_t bytes) {
  if (auto done = stream_.fill(memory, 0, bytes); !done && status_) status_ = done;
}

Result<void*> DeviceArena::allocate(size_t bytes, bool fixed) {
  constexpr size_t kAlign = 256, kSmallest = size_t{16} << 20;
  const size_t size = (std::max<size_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
  for (; block_ < blocks_.size(); ++block_, offset_ = 0) {
    if (offset_ + size > blocks_[block_].size()) continue;
    std::byte* memory = blocks_[block_].as<std::byte>() + offset_;
    offset_ += size;
    return memory;
  }
  if (fixed) return fail(ErrorCode::kInternal, "a captured step asked for more memory than the same step took before");
  GALVANI_TRY(auto buffer, cuda::DeviceBuffer::allocate(device_, std::max(size, kSmallest), tag_));
  blocks_.push_back(std::move(buffer));
  block_ = blocks_.size() - 1;
  offset_ = size;
  return blocks_.back().data();
}

size_t DeviceArena::capacity() const {
  size_t bytes = 0;
  for (const auto& block : blocks_) bytes += block.size();
  return bytes;
}

}  // namespace galvani::exec
