#pragma once
#include "kernels/cuda_checks.h"

namespace galvani::kernels {

/// The sweep's sum and the fill's words are integers, so both must agree exactly.
Result<std::vector<KernelVerdict>> check_probe(cuda::CudaDevice& device, uint64_t seed);

}  // namespace galvani::kernels
