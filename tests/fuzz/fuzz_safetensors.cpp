/// Safetensors headers, shard indexes and .npy files: whatever the bytes, an answer or an error.
#include <cstdlib>

#include "formats/npy.h"
#include "formats/safetensors.h"

using namespace galvani;
using namespace galvani::formats;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  if (auto file = SafetensorsFile::open_bytes(bytes, "fuzz"); file) {
    size_t total = 0;
    for (const auto& entry : (*file)->tensors()) {
      const auto view = (*file)->view(entry);
      total += view.bytes.size();
      if ((*file)->find(entry.name) != &entry) std::abort();
    }
    if (total > size) std::abort();  // tensors must not share bytes
  }
  (void)parse_safetensors_index({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (auto array = read_npy_bytes(bytes, "fuzz"); array) (void)npy_ids(*array, "fuzz", 1000);
  return 0;
}
