#include "exec/memory.h"

#include <cstring>
#include <new>

#include "core/error.h"

namespace galvani::exec {
namespace {

class HostMemory final : public Memory {
 public:
  Result<std::byte*> allocate(size_t bytes, const char* purpose) override {
    auto* memory = static_cast<std::byte*>(::operator new (bytes == 0 ? 1 : bytes, std::align_val_t{64}, std::nothrow));
    if (memory == nullptr)
      return fail(ErrorCode::kOutOfMemory,
                  "cannot allocate {:.1f} MiB for {}; lower the context (-c) or the number of sequences",
                  static_cast<double>(bytes) / (1 << 20), purpose);
    return memory;
  }
  void release(std::byte* memory) noexcept override { ::operator delete (memory, std::align_val_t{64}); }
  void copy(std::byte* to, const std::byte* from, size_t bytes) override { std::memcpy(to, from, bytes); }
  void zero(std::byte* memory, size_t bytes) override { std::memset(memory, 0, bytes); }
};

}  // namespace

Memory& host_memory() {
  static HostMemory memory;
  return memory;
}

}  // namespace galvani::exec
