#pragma once
/// Sampling on a GPU: sampling.h's contract. Only ids and the log-probabilities that were asked for come back.
///
/// Draws are sampling.h's, from the same u: a token can differ from the CPU's only where u · mass lies within the
/// rounding of the two sums (2^−22 of the mass) of a border. Vocabularies up to 2^20.
#include <memory>
#include <span>
#include <vector>

#include "cuda/memory.h"
#include "kernels/sampling/sampling.h"

namespace galvani::kernels {

/// Owns the buffers that sampling needs; they grow with the largest call.
class CudaSampler {
 public:
  static Result<CudaSampler> create(cuda::CudaDevice& device);

  /// logits: [rows, vocab] f32 on the device, row stride in elements. Waits for the stream. Errors as sample()'s.
  Result<std::vector<SampledToken>> sample(cuda::Stream& stream, const float* logits, int64_t rows, int64_t vocab,
                                           int64_t stride, std::span<const RowSampling> per_row);

 private:
  Status reserve(size_t upload, size_t edited, size_t parts, size_t results);
  cuda::CudaDevice* device_ = nullptr;
  cuda::PinnedBuffer host_;  // upload, then results
  cuda::DeviceBuffer tables_, edited_, parts_;
};

}  // namespace galvani::kernels
