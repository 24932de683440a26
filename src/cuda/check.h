#pragma once
/// Checked calls of the CUDA runtime. The only header here that includes CUDA's; for src/cuda/*.cpp and host code in
/// .cu.
#include <cuda_runtime_api.h>

#include "core/error.h"
#include "cuda/device.h"

/// GALVANI_CUDA_TRY(device, cudaMemcpyAsync(...), "the upload of {}", tag): returns from the function with our error,
/// naming the call and what it was for. `device` is a CudaDevice.
#define GALVANI_CUDA_TRY(device, call, ...)                                                          \
  do {                                                                                               \
    const cudaError_t cuda_error_ = (call);                                                          \
    if (cuda_error_ != cudaSuccess) [[unlikely]]                                                     \
      return (device).failed(cuda_error_, ::fmt::format("{} ({})", ::fmt::format(__VA_ARGS__),       \
                                                        ::galvani::cuda::detail::call_name(#call))); \
  } while (0)

namespace galvani::cuda::detail {

/// "cudaMemcpyAsync" of "cudaMemcpyAsync(to, from, n)".
inline std::string call_name(std::string_view call) { return std::string(call.substr(0, call.find('('))); }

/// Errors after which a process gets nothing but the same error from this device.
bool is_sticky(cudaError_t error);

/// While it lives, calls of this thread that a capture elsewhere would forbid are allowed.
class RelaxedCapture {
 public:
  RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~RelaxedCapture() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace galvani::cuda::detail
