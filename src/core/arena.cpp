#include "core/arena.h"

#include <algorithm>
#include <new>

namespace galvani {
namespace {
constexpr size_t kAlign = 64;
std::byte* aligned_bytes(size_t bytes) {
  return static_cast<std::byte*>(::operator new[](std::max(bytes, kAlign), std::align_val_t{kAlign}));
}
void free_bytes(std::byte* p) noexcept { ::operator delete[](p, std::align_val_t{kAlign}); }
}  // namespace

void Arena::Free::operator()(std::byte* p) const noexcept { free_bytes(p); }
void AlignedBuffer::Free::operator()(std::byte* p) const noexcept { free_bytes(p); }
AlignedBuffer::AlignedBuffer(size_t bytes) : data_(aligned_bytes(bytes)), size_(bytes) {}

void* Arena::allocate(size_t bytes) {
  bytes = (std::max<size_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
  while (block_ < blocks_.size() && used_ + bytes > blocks_[block_].size) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) {
    const size_t size = std::max(bytes, block_bytes_);
    blocks_.push_back(Block{std::unique_ptr<std::byte[], Free>(aligned_bytes(size)), size});
    used_ = 0;
  }
  std::byte* result = blocks_[block_].data.get() + used_;
  used_ += bytes;
  return result;
}

size_t Arena::capacity_bytes() const noexcept {
  size_t total = 0;
  for (const Block& block : blocks_) total += block.size;
  return total;
}

}  // namespace galvani
