#include "cuda/device.h"

#include <algorithm>

#include "core/log.h"
#include "cuda/check.h"
#include "device/parts.h"

namespace galvani::cuda {
namespace {

Result<DeviceCaps> read_caps(int index, std::string* name) {
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess)
    return fail(ErrorCode::kUnsupported, "GPU {}: its properties could not be read: {} (cudaGetDeviceProperties)",
                index, cudaGetErrorString(error));
  DeviceCaps caps;
  caps.cc = 10 * properties.major + properties.minor;
  caps.sms = properties.multiProcessorCount;
  caps.smem_optin = static_cast<int>(properties.sharedMemPerBlockOptin);
  caps.smem_per_sm = static_cast<int>(properties.sharedMemPerMultiprocessor);
  caps.regs_per_sm = properties.regsPerMultiprocessor;
  caps.max_threads_per_sm = properties.maxThreadsPerMultiProcessor;
  caps.l2_bytes = properties.l2CacheSize;
  caps.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  *name = properties.name;
  if (const Part* part = part_of_device(*name, caps)) caps.peak_gbps = part->caps.peak_gbps;
  return caps;
}

}  // namespace

namespace detail {

bool is_sticky(cudaError_t error) {
  switch (error) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorDevicesUnavailable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorCudartUnloading:
    case cudaErrorUnknown: return true;
    default: return false;
  }
}

}  // namespace detail

Result<std::shared_ptr<CudaDevice>> CudaDevice::open(int index, const CudaOptions& options) {
  const DriverState state = driver_state();
  if (state.kind != DriverState::Kind::kReady) return fail(ErrorCode::kUnsupported, "{}", state.message);
  if (index < 0 || index >= state.devices)
    return fail(ErrorCode::kOutOfRange, "GPU {} was asked for, this machine has {} (0 to {})", index, state.devices,
                state.devices - 1);
  auto device = std::shared_ptr<CudaDevice>(new CudaDevice());
  device->index_ = index, device->options_ = options;
  GALVANI_TRY(DeviceCaps caps, read_caps(index, &device->name_));
  GALVANI_TRY_VOID(check_coverage(options.images, caps.cc, device->name_));
  device->caps_ = with_images(caps, options.images);
  GALVANI_TRY_VOID(device->make_current());
  // Creates the context here, where a failure can be reported.
  if (const cudaError_t error = cudaFree(nullptr); error != cudaSuccess)
    return device->failed(error, fmt::format("GPU {} ({}) could not be started", index, device->name_));
  device->build_kernel_table();
  return device;
}

CudaDevice::~CudaDevice() {
  for (const auto& [tag, bytes] : memory_)
    if (bytes > 0) log_warn("{} bytes of '{}' on GPU {} were never given back", bytes, tag, index_);
}

/// One kernel a name: the best image among the objects; if none covers the device, any, so that its refusal has words.
void CudaDevice::build_kernel_table() {
  for (const KernelObject& object : options_.kernels) {
    const auto image = parse_cuda_image(object.arch);
    const int rank = image && covers(*image, caps_.cc) ? image_rank(*image) : -1;
    for (const KernelEntry& entry : object.entries) {
      auto& slot = kernels_[entry.name];
      if (slot != nullptr) {
        const auto other = parse_cuda_image(slot->arch());
        if (other && covers(*other, caps_.cc) && image_rank(*other) >= rank) continue;
        if (rank < 0) continue;
      }
      slot = std::make_unique<Kernel>(*this, entry, object.arch);
    }
  }
}

Result<const Kernel*> CudaDevice::kernel(std::string_view name) const {
  const auto found = kernels_.find(name);
  if (found != kernels_.end()) return found->second.get();
  return fail(ErrorCode::kNotFound,
              "no kernel '{}' in this binary, which was built for {}; a kernel of a newer architecture needs that "
              "architecture in GALVANI_CUDA_ARCHS",
              name, options_.images.empty() ? "no architecture" : cuda_images_str(options_.images));
}

std::vector<const Kernel*> CudaDevice::kernels() const {
  std::vector<const Kernel*> list;
  for (const auto& [name, kernel] : kernels_) list.push_back(kernel.get());
  return list;
}

Status CudaDevice::make_current() const {
  if (const cudaError_t error = cudaSetDevice(index_); error != cudaSuccess)
    return const_cast<CudaDevice*>(this)->failed(error, "cudaSetDevice");
  return {};
}

Status CudaDevice::alive() const {
  const std::lock_guard lock(mutex_);
  if (dead_) return tl::unexpected<Error>(death_);
  return {};
}

Status CudaDevice::synchronize() {
  GALVANI_TRY_VOID(alive());
  GALVANI_TRY_VOID(make_current());
  GALVANI_CUDA_TRY(*this, cudaDeviceSynchronize(), "waiting for GPU {}", index_);
  return {};
}

tl::unexpected<Error> CudaDevice::failed(int cuda_error, const std::string& what) {
  const auto error = static_cast<cudaError_t>(cuda_error);
  cudaGetLastError();  // an error that is not sticky must not be found again by the next caller
  const ErrorCode code = error == cudaErrorMemoryAllocation ? ErrorCode::kOutOfMemory : ErrorCode::kInternal;
  if (!detail::is_sticky(error))
    return fail(code, "{}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error));
  const std::lock_guard lock(mutex_);
  if (!dead_) {
    dead_ = true;
    death_.code = ErrorCode::kInternal;
    death_.message = fmt::format(
        "GPU {} ({}) stopped working in this step: {}: {} ({}); kernels launched last: {}. Nothing it computed in this "
        "step is used; no further work on it is possible in this process, restart it. GALVANI_CUDA_SYNC=1 names the "
        "kernel at fault",
        index_, name_, what, cudaGetErrorString(error), cudaGetErrorName(error), recent_launches());
  }
  return tl::unexpected<Error>(death_);
}

void CudaDevice::note_launch(const Kernel& kernel) {
  recent_[recent_next_.fetch_add(1, std::memory_order_relaxed) % kRecent].store(&kernel, std::memory_order_relaxed);
}

std::string CudaDevice::recent_launches() const {
  std::string text;
  const uint64_t next = recent_next_.load();
  for (uint64_t i = next > kRecent ? next - kRecent : 0; i < next; ++i) {
    if (!text.empty()) text += ", ";
    text += recent_[i % kRecent].load()->name();
  }
  return text.empty() ? "none" : text;
}

Result<CudaDevice::MemoryInfo> CudaDevice::memory() const {
  GALVANI_TRY_VOID(make_current());
  size_t free_bytes = 0, total = 0;
  GALVANI_CUDA_TRY(*const_cast<CudaDevice*>(this), cudaMemGetInfo(&free_bytes, &total), "asking for free memory");
  return MemoryInfo{static_cast<int64_t>(free_bytes), static_cast<int64_t>(total)};
}

std::map<std::string, int64_t> CudaDevice::memory_by_tag() const {
  const std::lock_guard lock(mutex_);
  return memory_;
}

void CudaDevice::note_memory(const std::string& tag, int64_t bytes) {
  const std::lock_guard lock(mutex_);
  memory_[tag] += bytes;
}

}  // namespace galvani::cuda
