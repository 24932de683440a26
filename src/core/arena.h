#pragma once
/// Bump allocator for one step's activations: 64-byte aligned, reset at each step, grows by whole blocks and keeps
/// them.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace galvani {

class Arena {
 public:
  explicit Arena(size_t block_bytes = size_t{1} << 20) : block_bytes_(block_bytes) {}
  /// Uninitialised memory that lives until the next reset().
  void* allocate(size_t bytes);
  /// Everything handed out so far is free again; the memory stays with the arena.
  void reset() { rewind({}); }
  /// A point to come back to: rewind(mark) frees what was handed out since mark().
  struct Mark {
    size_t block = 0, used = 0;
  };
  Mark mark() const noexcept { return {block_, used_}; }
  void rewind(Mark mark) noexcept {
    block_ = mark.block;
    used_ = mark.used;
  }
  size_t capacity_bytes() const noexcept;

 private:
  struct Free {
    void operator()(std::byte* p) const noexcept;
  };
  struct Block {
    std::unique_ptr<std::byte[], Free> data;
    size_t size = 0;
  };
  std::vector<Block> blocks_;
  size_t block_ = 0, used_ = 0, block_bytes_;
};

/// Owned 64-byte aligned bytes (weights, pools). Uninitialised.
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(size_t bytes);
  std::byte* data() noexcept { return data_.get(); }
  const std::byte* data() const noexcept { return data_.get(); }
  size_t size() const noexcept { return size_; }

 private:
  struct Free {
    void operator()(std::byte* p) const noexcept;
  };
  std::unique_ptr<std::byte[], Free> data_;
  size_t size_ = 0;
};

}  // namespace galvani
