#pragma once
/// How device code becomes known to the host: each object file of device code holds one table of its kernels, and the
/// build writes the list of tables (no self-registration, which a static library would drop without a word).
///
/// At the end of a kernel file <op>_smNN.cu (docs/cuda.md):
///   GALVANI_KERNEL_TABLE(rope_sm75,
///       GALVANI_KERNEL("rope_f32_sm75", rope_kernel<float>, .threads = 256),
///       GALVANI_MORE_KERNELS(GALVANI_KERNEL("rope_bf16_sm75", rope_kernel<__nv_bfloat16>, .threads = 256)))
/// No CUDA include; this header is read by nvcc and by the host compiler.
#include <span>
#include <typeinfo>

#include "device/features.h"

namespace galvani::cuda {

struct KernelEntry {
  const char* name = nullptr;                 ///< unique within an architecture; ends in _smNN[a|f], the least it needs
  const void* function = nullptr;             ///< the host-side address of the __global__ function
  const std::type_info* signature = nullptr;  ///< of the parameters, see signature_of
  Features needs;        ///< beyond what the name's suffix says, e.g. an instruction that only some images have
  int threads = 1024;    ///< threads of a block at most, checked against what the compiler granted
  int dynamic_smem = 0;  ///< bytes of dynamic shared memory at most, 0 = as the plan says, up to the device's limit
};

/// The kernels of one object file, compiled for one architecture.
struct KernelObject {
  const char* file = nullptr;  ///< "rope_sm75"
  const char* arch = nullptr;  ///< as compiled: "sm_90a", or "compute_80" for PTX
  std::span<const KernelEntry> entries;
};

/// All objects of this binary; empty in a build without CUDA.
std::span<const KernelObject> builtin_kernels();
/// GALVANI_CUDA_ARCHS as this binary was built; empty in a build without CUDA.
CudaImageList builtin_images();
/// "13.0" or "none".
const char* builtin_toolkit();

/// The type that stands for a kernel's parameters. An alias, since nvcc 12.4 does not parse it inside typeid.
template <typename... Parameters>
using KernelPointer = void (*)(Parameters...);
template <typename... Parameters>
const std::type_info* signature_of(void (*)(Parameters...)) {
  return &typeid(KernelPointer<Parameters...>);
}
template <typename... Parameters>
const void* address_of(void (*kernel)(Parameters...)) {
  return reinterpret_cast<const void*>(kernel);
}

}  // namespace galvani::cuda

#define GALVANI_STRING_IMPL(x) #x
#define GALVANI_STRING(x) GALVANI_STRING_IMPL(x)

/// A build whose runtime must know more of a kernel than its address (tests/emulated_gpu) brings its own.
#ifndef GALVANI_KERNEL_ADDRESS
#define GALVANI_KERNEL_ADDRESS(kernel) ::galvani::cuda::address_of(kernel)
#endif

/// (name, kernel, .threads = ..., .dynamic_smem = ..., .needs = ...); commas in a kernel's template arguments need a
/// `constexpr auto` alias or parentheses around the kernel.
#define GALVANI_KERNEL(kernel_name, kernel, ...)                     \
  ::galvani::cuda::KernelEntry {                                     \
    .name = kernel_name, .function = GALVANI_KERNEL_ADDRESS(kernel), \
    .signature = ::galvani::cuda::signature_of(kernel), __VA_ARGS__  \
  }

/// Further instances of kernels that a table already lists, last in it: architectures that CI only checks get none of
/// them.
#ifdef GALVANI_ONE_INSTANCE
#define GALVANI_MORE_KERNELS(...)
#else
#define GALVANI_MORE_KERNELS(...) __VA_ARGS__
#endif

/// GALVANI_CUDA_NS (sm90a) and GALVANI_CUDA_ARCH (sm_90a) are set by the build for each architecture.
#define GALVANI_KERNEL_TABLE(file_stem, ...)                             \
  namespace galvani::cuda::GALVANI_CUDA_NS {                             \
  ::galvani::cuda::KernelObject file_stem##_table() {                    \
    static const ::galvani::cuda::KernelEntry entries[] = {__VA_ARGS__}; \
    return {#file_stem, GALVANI_STRING(GALVANI_CUDA_ARCH), entries};     \
  }                                                                      \
  }
