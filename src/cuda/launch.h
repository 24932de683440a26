#pragma once
/// The one way to launch a kernel. Every launch is checked in every build: the kernel's self-test, the grid, the block,
/// the shared memory, the types of the arguments, and what the runtime answered. Errors name the kernel.
///
///   GALVANI_TRY(const Kernel* kernel, device.kernel("rope_f32_sm75"));
///   GALVANI_TRY_VOID(launch(stream, *kernel, {.grid = {blocks}, .block = {256}, .outputs = {{y, bytes}}}, x, y, n));
/// Arguments must have exactly the kernel's parameter types (int is not unsigned, const T* is not T*).
#include <array>
#include <cstddef>
#include <typeinfo>

#include "cuda/stream.h"

namespace galvani::cuda {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

/// Memory that the kernel writes completely. Under GALVANI_POISON=1 it is filled with 0xff bytes, a NaN in f32, f16 and
/// bf16, before the kernel. Leave out what is also read.
struct Output {
  void* data = nullptr;
  size_t bytes = 0;
};

struct LaunchConfig {
  Dim3 grid, block;
  int dynamic_smem = 0;            ///< bytes; opted in when above the static limit
  Dim3 cluster;                    ///< blocks of a cluster; {1,1,1} = none
  bool dependent_launch = false;   ///< may start before the kernel before it ends (it calls griddepcontrol.wait)
  bool cooperative = false;        ///< all blocks run at once (they wait for each other); refused if they do not fit
  int smem_carveout_percent = -1;  ///< share of L1 wanted as shared memory; -1 = the driver's choice
  std::array<Output, 4> outputs{};
};

namespace detail {
Status launch_erased(Stream& stream, const Kernel& kernel, const LaunchConfig& config, const std::type_info& signature,
                     void** arguments);
/// The part that needs no device: pure, tested on the CPU. Errors: kInvalidArgument.
Status validate_launch(const Kernel& kernel, const LaunchConfig& config, const std::type_info& signature);
}  // namespace detail

template <typename... Args>
Status launch(Stream& stream, const Kernel& kernel, const LaunchConfig& config, const Args&... args) {
  void* pointers[] = {const_cast<void*>(static_cast<const void*>(&args))..., nullptr};
  return detail::launch_erased(stream, kernel, config, typeid(KernelPointer<Args...>), pointers);
}

}  // namespace galvani::cuda
