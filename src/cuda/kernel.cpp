#include "cuda/check.h"

namespace galvani::cuda {

SelfTest Kernel::self_test() const {
  const Answer known = answer_.load(std::memory_order_acquire);
  if (known == Answer::kYes) return {Answer::kYes, ""};
  const std::lock_guard lock(mutex_);
  if (result_.answer == Answer::kYes || result_.answer == Answer::kNo) return result_;
  // What the registration rules out is not loaded at all.
  SelfTest result = judge_registration(entry_, arch_, device_.caps());
  if (result.answer == Answer::kYes) {
    const detail::RelaxedCapture relaxed;
    cudaFuncAttributes loaded{};
    cudaError_t error = cudaSetDevice(device_.index());
    if (error == cudaSuccess) error = cudaFuncGetAttributes(&loaded, entry_.function);
    if (error == cudaSuccess) {
      attributes_ = {.binary_version = loaded.binaryVersion,
                     .ptx_version = loaded.ptxVersion,
                     .registers = loaded.numRegs,
                     .max_threads = loaded.maxThreadsPerBlock,
                     .static_smem = static_cast<int>(loaded.sharedSizeBytes),
                     .local_bytes = static_cast<int>(loaded.localSizeBytes),
                     .constant_bytes = static_cast<int>(loaded.constSizeBytes)};
      result = judge_kernel(entry_, arch_, device_.caps(), attributes_);
    } else {
      cudaGetLastError();
      // These say that the image is not there or does not load; anything else may pass.
      const bool no = error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction ||
                      error == cudaErrorInvalidKernelImage || error == cudaErrorUnsupportedPtxVersion ||
                      error == cudaErrorInvalidPtx || error == cudaErrorJitCompilationDisabled;
      result = {no ? Answer::kNo : Answer::kCouldNotTell,
                fmt::format("kernel {} ({}) did not load: {} ({})", entry_.name, arch_, cudaGetErrorString(error),
                            cudaGetErrorName(error))};
    }
  }
  if (result.answer != Answer::kCouldNotTell) {
    result_ = result;
    answer_.store(result.answer, std::memory_order_release);
  }
  return result;
}

KernelAttributes Kernel::attributes() const {
  (void)self_test();
  const std::lock_guard lock(mutex_);
  return attributes_;
}

Status Kernel::opt_in(int bytes) const {
  if (bytes <= opted_in_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  if (bytes <= opted_in_.load(std::memory_order_relaxed)) return {};
  if (attributes_.static_smem + bytes > device_.caps().smem_optin)
    return fail(ErrorCode::kInvalidArgument,
                "kernel {}: {} bytes of dynamic and {} of static shared memory were asked for; {} allows {} a block",
                name(), bytes, attributes_.static_smem, device_.name(), device_.caps().smem_optin);
  const detail::RelaxedCapture relaxed;
  GALVANI_CUDA_TRY(device_, cudaFuncSetAttribute(entry_.function, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
                   "kernel {}: {} bytes of dynamic shared memory", name(), bytes);
  opted_in_.store(bytes, std::memory_order_release);
  return {};
}

}  // namespace galvani::cuda
