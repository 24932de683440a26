#pragma once
/// The operations' comparisons for the table in cuda_checks.cpp; each stands in its operation's folder. Bounds are
/// those of the operation's tests; shapes are small.
#include "kernels/cuda_checks.h"

namespace galvani::kernels {

/// Packing on the device: integers, so that every byte must agree.
Result<std::vector<KernelVerdict>> check_a16_pack(cuda::CudaDevice& device, uint64_t seed);
/// Every arm, width and type that this part runs.
Result<std::vector<KernelVerdict>> check_attention(cuda::CudaDevice& device, uint64_t seed);
/// Gated activation, the logits' last step, embedding, counts of what a type cannot hold.
Result<std::vector<KernelVerdict>> check_elementwise(cuda::CudaDevice& device, uint64_t seed);
/// The product without matrix instructions.
Result<std::vector<KernelVerdict>> check_linear(cuda::CudaDevice& device, uint64_t seed);
Result<std::vector<KernelVerdict>> check_norm(cuda::CudaDevice& device, uint64_t seed);
/// The sweep's sum and the fill's words are integers, so both must agree exactly.
Result<std::vector<KernelVerdict>> check_probe(cuda::CudaDevice& device, uint64_t seed);
/// Every width, arm and tile that this part runs.
Result<std::vector<KernelVerdict>> check_qmatmul(cuda::CudaDevice& device, uint64_t seed);
/// The table of a step's positions, and from the q/k/v product to queries and pages.
Result<std::vector<KernelVerdict>> check_rope(cuda::CudaDevice& device, uint64_t seed);
/// Tokens of the f64 distribution at the same u, and their log-probabilities.
Result<std::vector<KernelVerdict>> check_sampling(cuda::CudaDevice& device, uint64_t seed);
/// A layer as phases of one kernel, on all multiprocessors and on few.
Result<std::vector<KernelVerdict>> check_step(cuda::CudaDevice& device, uint64_t seed);

/// Kernels that those with several compare on such a part.
std::vector<std::string> checked_a16_pack(const DeviceCaps& caps);
std::vector<std::string> checked_attention(const DeviceCaps& caps);
std::vector<std::string> checked_qmatmul(const DeviceCaps& caps);
std::vector<std::string> checked_step(const DeviceCaps& caps);

}  // namespace galvani::kernels
