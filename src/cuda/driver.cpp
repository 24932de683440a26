#include <cuda_runtime_api.h>

#include "core/error.h"
#include "cuda/choose_device.h"
#include "cuda/device.h"

namespace galvani::cuda {
namespace {

std::string version_str(int version) { return fmt::format("{}.{}", version / 1000, version % 1000 / 10); }

}  // namespace

DriverState driver_state() {
  using Kind = DriverState::Kind;
  DriverState state;
  cudaRuntimeGetVersion(&state.runtime_version);
  // Without a driver this succeeds and says 0.
  if (cudaDriverGetVersion(&state.driver_version) != cudaSuccess) state.driver_version = 0;
  const cudaError_t error = cudaGetDeviceCount(&state.devices);
  if (error == cudaSuccess && state.devices > 0) {
    state.kind = Kind::kReady;
    return state;
  }
  cudaGetLastError();
  state.devices = 0;
  const char* cure = "";
  if (state.driver_version == 0) {
    state.kind = Kind::kNoDriver;
    state.reason = "this machine has no NVIDIA driver (libcuda.so.1 was not found)";
    cure = "install one, or ";
  } else if (error == cudaErrorInsufficientDriver) {
    state.kind = Kind::kDriverTooOld;
    state.reason = fmt::format("the NVIDIA driver here brings CUDA {}, this binary was built with CUDA {}",
                               version_str(state.driver_version), version_str(state.runtime_version));
    cure = "update the driver, rebuild with an older toolkit, or ";
  } else if (error == cudaErrorNoDevice || error == cudaSuccess) {
    state.kind = Kind::kNoDevice;
    state.reason = "the NVIDIA driver found no GPU (is it visible here, is CUDA_VISIBLE_DEVICES set?)";
  } else {
    state.kind = Kind::kFailed;
    state.reason = fmt::format("CUDA did not start: {} ({})", cudaGetErrorString(error), cudaGetErrorName(error));
    cure = "see `nvidia-smi`, or ";
  }
  state.message = fmt::format("{}; {}use --device cpu", state.reason, cure);
  return state;
}

Result<DeviceIdentity> device_identity(int index) {
  cudaDeviceProp properties{};
  if (const cudaError_t error = cudaGetDeviceProperties(&properties, index); error != cudaSuccess) {
    cudaGetLastError();
    return fail(ErrorCode::kUnsupported, "GPU {} could not be asked what it is: {} (cudaGetDeviceProperties)", index,
                cudaGetErrorString(error));
  }
  return DeviceIdentity{10 * properties.major + properties.minor, properties.name};
}

}  // namespace galvani::cuda
