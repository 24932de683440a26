#pragma once
/// The ceiling of a GPU's memory, measured here and now: what is bound by memory is printed beside it.
#include <cstdint>

#include "cuda/memory.h"

namespace galvani::kernels {

struct ReadCeiling {
  double gbps = 0;    ///< 10^9 bytes a second, best of the repetitions
  int64_t bytes = 0;  ///< read by each of them
};
/// Sweeps `bytes` of random data (default: 8 GiB, at most a quarter of what is free).
Result<ReadCeiling> measure_read_ceiling(cuda::CudaDevice& device, int64_t bytes = int64_t{8} << 30);

/// Sum of 32-bit words modulo 2^32, by the kernel that the read ceiling is measured with.
Result<uint32_t> read_sum(cuda::Stream& stream, const void* data, int64_t bytes);
/// Fills with random 32-bit words; with (h & mask) | set each. Bytes, a multiple of 4.
Status fill_random(cuda::Stream& stream, void* data, int64_t bytes, uint32_t seed, uint32_t mask = ~0u,
                   uint32_t set = 0);
/// The word that fill_random writes at index i.
uint32_t random_word(uint64_t i, uint32_t seed);

}  // namespace galvani::kernels
