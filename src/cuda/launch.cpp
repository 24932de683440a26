#include "cuda/launch.h"

#include "cuda/check.h"

namespace galvani::cuda::detail {
namespace {

dim3 dims(Dim3 d) { return {d.x, d.y, d.z}; }

Status poison(Stream& stream, const Kernel& kernel, const LaunchConfig& config) {
  for (const Output& output : config.outputs) {
    if (output.data == nullptr || output.bytes == 0) continue;
    GALVANI_CUDA_TRY(stream.device(), cudaMemsetAsync(output.data, 0xff, output.bytes, stream.handle()),
                     "poisoning the output of {}", kernel.name());
  }
  return {};
}

int attributes_of(const LaunchConfig& config, cudaLaunchAttribute (&attributes)[4]) {
  int count = 0;
  const Dim3 cluster = config.cluster;
  if (cluster.x * cluster.y * cluster.z > 1) {
    cudaLaunchAttribute& attribute = attributes[count++];
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = cluster.x;
    attribute.val.clusterDim.y = cluster.y;
    attribute.val.clusterDim.z = cluster.z;
  }
  if (config.cooperative) {
    cudaLaunchAttribute& attribute = attributes[count++];
    attribute.id = cudaLaunchAttributeCooperative;
    attribute.val.cooperative = 1;
  }
  if (config.dependent_launch) {
    cudaLaunchAttribute& attribute = attributes[count++];
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
  }
#if CUDART_VERSION >= 13000
  if (config.smem_carveout_percent >= 0) {
    cudaLaunchAttribute& attribute = attributes[count++];
    attribute.id = cudaLaunchAttributePreferredSharedMemoryCarveout;
    attribute.val.sharedMemCarveout = static_cast<unsigned>(config.smem_carveout_percent);
  }
#endif
  return count;
}

/// Before CUDA 13 the carve-out is a property of the function, not of the launch.
Status set_carveout([[maybe_unused]] const Kernel& kernel, [[maybe_unused]] const LaunchConfig& config) {
#if CUDART_VERSION < 13000
  if (config.smem_carveout_percent >= 0)
    GALVANI_CUDA_TRY(kernel.device(),
                     cudaFuncSetAttribute(kernel.entry().function, cudaFuncAttributePreferredSharedMemoryCarveout,
                                          config.smem_carveout_percent),
                     "launch of {}: carve-out", kernel.name());
#endif
  return {};
}

/// A cooperative launch: the runtime would only say that it is too large. Also during a capture.
Status check_resident(const Kernel& kernel, const LaunchConfig& config) {
  CudaDevice& device = kernel.device();
  const RelaxedCapture relaxed;
  int supported = 0, blocks = 0;
  GALVANI_CUDA_TRY(device, cudaDeviceGetAttribute(&supported, cudaDevAttrCooperativeLaunch, device.index()),
                   "launch of {}", kernel.name());
  if (supported == 0)
    return fail(ErrorCode::kUnsupported,
                "launch of {}: {} has no cooperative launches, so its blocks cannot wait for "
                "each other",
                kernel.name(), device.name());
  const auto threads = static_cast<int>(config.block.x * config.block.y * config.block.z);
  GALVANI_CUDA_TRY(device,
                   cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel.entry().function, threads,
                                                                 static_cast<size_t>(config.dynamic_smem)),
                   "launch of {}", kernel.name());
  const uint64_t grid = uint64_t{config.grid.x} * config.grid.y * config.grid.z;
  const auto fit = static_cast<uint64_t>(blocks) * static_cast<uint64_t>(device.caps().sms);
  if (grid <= fit) return {};
  return fail(ErrorCode::kInvalidArgument,
              "launch of {}: a cooperative grid of {} blocks; {} holds {} at once ({} multiprocessors, {} blocks of {} "
              "threads and {} bytes of dynamic shared memory on each)",
              kernel.name(), grid, device.name(), fit, device.caps().sms, blocks, threads, config.dynamic_smem);
}

}  // namespace

Status launch_erased(Stream& stream, const Kernel& kernel, const LaunchConfig& config, const std::type_info& signature,
                     void** arguments) {
  CudaDevice& device = stream.device();
  GALVANI_TRY_VOID(device.alive());
  if (&kernel.device() != &device)
    return fail(ErrorCode::kInvalidArgument, "launch of {}: the kernel is of GPU {}, the stream of GPU {}",
                kernel.name(), kernel.device().index(), device.index());
  GALVANI_TRY_VOID(validate_launch(kernel, config, signature));
  if (const SelfTest test = kernel.self_test(); test.answer != Answer::kYes)
    return fail(ErrorCode::kUnsupported, "launch of {} refused, its self-test says {}: {}", kernel.name(),
                answer_str(test.answer), test.reason);
  GALVANI_TRY_VOID(kernel.opt_in(config.dynamic_smem));
  GALVANI_TRY_VOID(device.make_current());
  GALVANI_TRY_VOID(set_carveout(kernel, config));
  if (config.cooperative) GALVANI_TRY_VOID(check_resident(kernel, config));
  if (device.options().poison) GALVANI_TRY_VOID(poison(stream, kernel, config));

  cudaLaunchAttribute attributes[4];
  cudaLaunchConfig_t launch{};
  launch.gridDim = dims(config.grid), launch.blockDim = dims(config.block);
  launch.dynamicSmemBytes = static_cast<size_t>(config.dynamic_smem);
  launch.stream = stream.handle();
  launch.attrs = attributes, launch.numAttrs = static_cast<unsigned>(attributes_of(config, attributes));
  device.note_launch(kernel);
  GALVANI_CUDA_TRY(device, cudaLaunchKernelExC(&launch, kernel.entry().function, arguments), "launch of {}",
                   kernel.name());
  stream.count_launch(kernel);
  if (device.options().sync_every_launch && !stream.capturing())
    GALVANI_CUDA_TRY(device, cudaStreamSynchronize(stream.handle()), "running {}", kernel.name());
  return {};
}

}  // namespace galvani::cuda::detail
