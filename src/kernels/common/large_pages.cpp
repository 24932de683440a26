#include "kernels/common/large_pages.h"

#include <cstdlib>
#include <mutex>
#include <new>
#ifdef __linux__
#include <sys/mman.h>
#endif

namespace galvani::kernels {
namespace {

constexpr size_t kPage = size_t{1} << 21;
constexpr size_t kSharedChunk = 8 * kPage;  ///< requests up to half of it share
constexpr size_t kAlign = 64;

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

std::shared_ptr<std::byte> new_chunk(size_t bytes) {
  void* memory = std::aligned_alloc(kPage, bytes);
  if (memory == nullptr) throw std::bad_alloc();
#ifdef __linux__
  madvise(memory, bytes, MADV_HUGEPAGE);  // a wish; refusal is harmless
#endif
  return {static_cast<std::byte*>(memory), [](std::byte* p) { std::free(p); }};
}

/// The chunk that small requests are cut from. It holds a reference of its own until it is full.
struct Shared {
  std::mutex mutex;
  std::shared_ptr<std::byte> chunk;
  size_t used = kSharedChunk;
};

Shared& shared() {
  static Shared state;
  return state;
}

}  // namespace

LargePageBuffer::LargePageBuffer(size_t bytes) : size_(bytes) {
  if (bytes > kSharedChunk / 2) {
    chunk_ = new_chunk(round_up(bytes, kPage));
    data_ = chunk_.get();
    return;
  }
  Shared& from = shared();
  const std::lock_guard lock(from.mutex);
  const size_t room = round_up(bytes, kAlign);
  if (from.used + room > kSharedChunk || from.chunk.use_count() == 1) {
    // Full, or nobody uses it any more: start again.
    if (from.chunk == nullptr || from.chunk.use_count() > 1) from.chunk = new_chunk(kSharedChunk);
    from.used = 0;
  }
  chunk_ = from.chunk, data_ = from.chunk.get() + from.used;
  from.used += room;
}

}  // namespace galvani::kernels
