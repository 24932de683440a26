#pragma once
/// The two ceilings of a GPU, measured here and now: plain reading, and a large matrix product of cuBLASLt. Everything
/// that is fast is printed beside one of them.
#include <cstdint>

#include "core/dtype.h"
#include "cuda/memory.h"

namespace galvani::kernels {

struct ReadCeiling {
  double gbps = 0;    ///< 10^9 bytes a second, best of the repetitions
  int64_t bytes = 0;  ///< read by each of them
};
/// Sweeps `bytes` of random data (default: 8 GiB, at most a quarter of what is free).
Result<ReadCeiling> measure_read_ceiling(cuda::CudaDevice& device, int64_t bytes = int64_t{8} << 30);

struct MatmulCeiling {
  double tflops = 0;  ///< 10^12 operations a second, median of the repetitions, random data
  int64_t size = 0;   ///< m = n = k
};
/// `type`: f16 or bf16, of inputs and output.
Result<MatmulCeiling> measure_matmul_ceiling(cuda::CudaDevice& device, DType type, int64_t size = 8192);

/// Sum of 32-bit words modulo 2^32, by the kernel that the read ceiling is measured with.
Result<uint32_t> read_sum(cuda::Stream& stream, const void* data, int64_t bytes);
/// Fills with random 32-bit words; with (h & mask) | set each. Bytes, a multiple of 4.
Status fill_random(cuda::Stream& stream, void* data, int64_t bytes, uint32_t seed, uint32_t mask = ~0u,
                   uint32_t set = 0);
/// The word that fill_random writes at index i.
uint32_t random_word(uint64_t i, uint32_t seed);

}  // namespace galvani::kernels
