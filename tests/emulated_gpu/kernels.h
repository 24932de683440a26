#pragma once
/// How the emulated runtime calls a __global__ function: kernel_table.h's GALVANI_KERNEL remembers each with its types.
#include <functional>
#include <tuple>
#include <utility>

namespace galvani::emulated {

/// Copies the arguments out of cudaLaunchKernelExC's array; the result calls the kernel with them.
using Bind = std::function<void()> (*)(const void* function, void** arguments);

/// `arch` as kernel tables have it, "sm_90a". Returns `function`.
const void* remember_kernel(const void* function, Bind bind, const char* arch);

template <typename... Parameters>
const void* remember(void (*kernel)(Parameters...), const char* arch) {
  const Bind bind = [](const void* function, void** arguments) -> std::function<void()> {
    const auto call = reinterpret_cast<void (*)(Parameters...)>(const_cast<void*>(function));
    return [call, copies = [&]<size_t... kI>(std::index_sequence<kI...>) {
      return std::tuple<std::remove_cv_t<Parameters>...>(*static_cast<std::remove_cv_t<Parameters>*>(arguments[kI])...);
    }(std::index_sequence_for<Parameters...>())] { std::apply(call, copies); };
  };
  return remember_kernel(reinterpret_cast<const void*>(kernel), bind, arch);
}

}  // namespace galvani::emulated
