#pragma once
/// The fixture kernels' tables, and builds put together from them.
#include <gtest/gtest.h>

#include <vector>

#include "cuda/launch.h"
#include "cuda/memory.h"

namespace galvani::cuda {

namespace sm90a {
KernelObject basic_sm75_table();
KernelObject cluster_sm90_table();
KernelObject guarded_sm90_table();
KernelObject product_sm80_table();
KernelObject product_sm90a_table();
}  // namespace sm90a
namespace sm90 {
KernelObject product_sm80_table();
KernelObject product_sm90a_table();
}  // namespace sm90
namespace ptx80 {
KernelObject guarded_sm90_table();
KernelObject product_sm80_table();
}  // namespace ptx80
namespace sm120f {
KernelObject basic_sm75_table();
}  // namespace sm120f

/// A binary that was built for `archs` and holds `objects`.
struct Build {
  std::vector<KernelObject> objects;
  const char* archs;

  CudaOptions options() const {
    CudaOptions options;
    options.kernels = objects;
    options.images = *parse_cuda_images(archs);
    return options;
  }
};

inline Build full_build() {
  return {{sm90a::basic_sm75_table(), sm90a::cluster_sm90_table(), sm90a::product_sm80_table(),
           sm90a::product_sm90a_table()},
          "90a"};
}

/// Why these tests cannot run here, or empty: the fixtures are compiled for 9.0.
inline std::string why_not_here() {
  const DriverState state = driver_state();
  if (state.kind != DriverState::Kind::kReady) return state.message;
  CudaOptions any;
  any.kernels = {};
  any.images = *parse_cuda_images("50-virtual");
  const auto device = CudaDevice::open(0, any);
  if (!device) return device.error().message;
  if ((*device)->caps().cc != 90)
    return "the fixtures are compiled for 9.0, GPU 0 is " + compute_capability_str((*device)->caps().cc);
  return "";
}

/// A device, a stream, and n floats or ints on it.
struct Rig {
  std::shared_ptr<CudaDevice> device;
  Stream stream;
  DeviceBuffer y;

  explicit Rig(const CudaOptions& options, size_t bytes = 4096) {
    auto opened = CudaDevice::open(0, options);
    if (!opened) throw std::runtime_error(opened.error().message);
    device = *opened;
    stream = std::move(*Stream::create(*device));
    y = std::move(*DeviceBuffer::allocate(*device, bytes, "test"));
    if (!stream.fill(y.data(), 0, bytes) || !stream.synchronize()) throw std::runtime_error("fill");
  }

  const Kernel& kernel(const char* name) const {
    auto found = device->kernel(name);
    if (!found) throw std::runtime_error(found.error().message);
    return **found;
  }

  template <typename T>
  std::vector<T> read(size_t count) {
    std::vector<T> host(count);
    if (!stream.to_host(host.data(), y.data(), count * sizeof(T)) || !stream.synchronize())
      throw std::runtime_error("read");
    return host;
  }
};

}  // namespace galvani::cuda

#define GALVANI_NEEDS_HOPPER() \
  if (const std::string why = ::galvani::cuda::why_not_here(); !why.empty()) GTEST_SKIP() << why
