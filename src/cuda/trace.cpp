// Shared by the CUDA build and the one without.
#include "core/log.h"
#include "cuda/device.h"

namespace galvani::cuda {

void CudaDevice::log_plan(std::string text) {
  const std::lock_guard lock(mutex_);
  const auto [entry, fresh] = traced_.insert(std::move(text));
  if (fresh) log_info("plan: {}", *entry);
}

}  // namespace galvani::cuda
