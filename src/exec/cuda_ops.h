#pragma once
/// Ops on an NVIDIA GPU. Residual stream and logits are f32; activations that enter products, queries, keys and values
/// are bf16 from 8.0 on and f16 below (`--act`). Decode steps are replayed as captured graphs, one a batch size.
#include <memory>

#include "device/device_caps.h"
#include "exec/ops.h"

namespace galvani::exec {

struct CudaOpsOptions {
  int device = 0;
  bool trace_plan = false;         ///< log which kernel each operation takes, and why
  bool sync_every_launch = false;  ///< an error names its kernel
  int64_t weight_bytes = 0;        ///< that will be uploaded, taken in one piece; 0: unknown
  int64_t one_kernel_keys = -1;    ///< of a step of one token in one kernel, at most; below 0: as planned
};

/// Opens the GPU. Errors: no CUDA in this build, no driver, no such device, nothing in the binary runs there (in
/// words); an arithmetic, an arm or an option that this backend does not have, by name.
Result<std::unique_ptr<Ops>> create_cuda_ops(const OpsOptions& options, const CudaOpsOptions& gpu);

/// A GPU of this machine, as plans know it. Errors: as create_cuda_ops, those of the device.
struct GpuIdentity {
  std::string name;
  DeviceCaps caps;
};
Result<GpuIdentity> gpu_identity(int device);

}  // namespace galvani::exec
