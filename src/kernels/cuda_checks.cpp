#include "kernels/cuda_checks.h"

#include "kernels/probe/probe_check.h"

namespace galvani::kernels {

std::span<const KernelCheck> kernel_checks() {
  // One operation a line, sorted.
  static constexpr KernelCheck kChecks[] = {
      {"probe", check_probe},
  };
  return kChecks;
}

}  // namespace galvani::kernels
