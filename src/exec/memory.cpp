#include "exec/memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "core/error.h"

namespace galvani::exec {
namespace {

constexpr size_t kLargePage = size_t{2} << 20, kLarge = 4 * kLargePage;

class HostMemory final : public Memory {
 public:
  Result<std::byte*> allocate(size_t bytes, const char* purpose) override {
    // Recurrent state is streamed through whole, once a step: on 4 KB pages a quarter slower (kernels/gated_delta).
    const size_t align = bytes >= kLarge ? kLargePage : 64;
    auto* memory =
        static_cast<std::byte*>(std::aligned_alloc(align, (std::max<size_t>(bytes, 1) + align - 1) / align * align));
    if (memory == nullptr)
      return fail(ErrorCode::kOutOfMemory,
                  "cannot allocate {:.1f} MiB for {}; lower the context (-c) or the number of sequences",
                  static_cast<double>(bytes) / (1 << 20), purpose);
    if (align == kLargePage) (void)madvise(memory, bytes, MADV_HUGEPAGE);  // a wish; without it the pages are small
    return memory;
  }
  void release(std::byte* memory) noexcept override { std::free(memory); }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void zero(std::byte* memory, size_t bytes) override { std::memset(memory, 0, bytes); }
};

}  // namespace

Memory& host_memory() {
  static HostMemory memory;
  return memory;
}

}  // namespace galvani::exec
