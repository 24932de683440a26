// Shared by the CUDA build and the one without.
#include <cxxabi.h>

#include <cstdlib>

#include "core/error.h"
#include "cuda/launch.h"

namespace galvani::cuda::detail {
namespace {

// CUDA C++ programming guide, "Technical specifications per compute capability": the same on every part since 3.0.
constexpr unsigned kMaxGridX = 2147483647, kMaxGridYz = 65535, kMaxThreads = 1024, kMaxBlockZ = 64;
constexpr unsigned kMaxCluster = 8;  // portable size

std::string readable(const std::type_info& type) {
  int status = 0;
  char* text = abi::__cxa_demangle(type.name(), nullptr, nullptr, &status);
  std::string result = status == 0 && text != nullptr ? text : type.name();
  std::free(text);
  return result;
}

}  // namespace

Status validate_launch(const Kernel& kernel, const LaunchConfig& config, const std::type_info& signature) {
  const KernelEntry& entry = kernel.entry();
  const auto refuse = [&](std::string what) {
    return fail(ErrorCode::kInvalidArgument, "launch of {}: {}", entry.name, what);
  };
  const auto dims = [](Dim3 d) { return fmt::format("{}x{}x{}", d.x, d.y, d.z); };
  const Dim3 grid = config.grid, block = config.block, cluster = config.cluster;
  if (*entry.signature != signature)
    return refuse(
        fmt::format("the arguments are {}, the kernel takes {}", readable(signature), readable(*entry.signature)));
  if (grid.x == 0 || grid.y == 0 || grid.z == 0)
    return refuse(fmt::format("the grid is {}; an empty problem must be decided before the launch", dims(grid)));
  if (grid.x > kMaxGridX || grid.y > kMaxGridYz || grid.z > kMaxGridYz)
    return refuse(fmt::format("the grid is {}; at most {}x{}x{}", dims(grid), kMaxGridX, kMaxGridYz, kMaxGridYz));
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > kMaxThreads || block.z > kMaxBlockZ || threads > static_cast<uint64_t>(entry.threads))
    return refuse(fmt::format("the block is {}, {} threads; 1 to {} are allowed, z at most {}", dims(block), threads,
                              std::min(kMaxThreads, static_cast<unsigned>(entry.threads)), kMaxBlockZ));
  const uint64_t size = uint64_t{cluster.x} * cluster.y * cluster.z;
  if (size == 0 || size > kMaxCluster || grid.x % cluster.x != 0 || grid.y % cluster.y != 0 || grid.z % cluster.z != 0)
    return refuse(fmt::format("the cluster is {} in a grid of {}; at most {} blocks, and it must divide the grid",
                              dims(cluster), dims(grid), kMaxCluster));
  if (size > 1 && config.cooperative) return refuse("a cooperative launch in clusters is not there");
  const auto image = parse_cuda_image(kernel.arch());
  const Features features = image ? features_of(*image) : Features();
  if ((size > 1 && !features.has(Feature::kCluster)) ||
      (config.dependent_launch && !features.has(Feature::kDependentLaunch)))
    return refuse(
        fmt::format("clusters and dependent launches need code of their generation, this kernel is {}", kernel.arch()));
  if (config.dynamic_smem < 0 || (entry.dynamic_smem > 0 && config.dynamic_smem > entry.dynamic_smem))
    return refuse(fmt::format("{} bytes of dynamic shared memory; the kernel is registered with at most {}",
                              config.dynamic_smem, entry.dynamic_smem));
  if (config.smem_carveout_percent < -1 || config.smem_carveout_percent > 100)
    return refuse(fmt::format("a shared-memory carve-out of {} %; -1 or 0 to 100", config.smem_carveout_percent));
  return {};
}

}  // namespace galvani::cuda::detail
