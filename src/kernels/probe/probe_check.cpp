#include <fmt/format.h>

#include "core/error.h"
#include "kernels/op_checks.h"
#include "kernels/probe/probe.h"

namespace galvani::kernels {

Result<std::vector<KernelVerdict>> check_probe(cuda::CudaDevice& device, uint64_t seed) {
  // Not a multiple of any block's share, so that the tail runs too.
  constexpr int64_t kWords = 4 * 1000003;
  const auto word_seed = static_cast<uint32_t>(seed);
  GALVANI_TRY(auto stream, cuda::Stream::create(device));
  GALVANI_TRY(const auto data, cuda::DeviceBuffer::allocate(device, kWords * 4, "self-test"));
  GALVANI_TRY_VOID(fill_random(stream, data.data(), kWords * 4, word_seed));
  std::vector<uint32_t> host(kWords);
  GALVANI_TRY_VOID(stream.to_host(host.data(), data.data(), kWords * 4));
  GALVANI_TRY_VOID(stream.synchronize());
  int64_t wrong = 0;
  uint32_t sum = 0;
  for (size_t i = 0; i < host.size(); ++i) {
    wrong += host[i] != random_word(i, word_seed);
    sum += host[i];
  }
  GALVANI_TRY(const uint32_t device_sum, read_sum(stream, data.data(), kWords * 4));
  return std::vector<KernelVerdict>{
      {"random_fill_sm70", wrong == 0 ? 0.0 : 2.0, fmt::format("{} of {} words differ", wrong, kWords)},
      {"read_sweep_sm70", device_sum == sum ? 0.0 : 2.0, fmt::format("sum {:#x}, expected {:#x}", device_sum, sum)}};
}

}  // namespace galvani::kernels
