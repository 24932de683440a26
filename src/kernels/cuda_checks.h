#pragma once
/// Each kernel against its f64 reference, on the device at hand: what `galvani doctor` runs. An operation adds one line
/// to the table in cuda_checks.cpp and a function in <op>_check.cpp; shapes are small, the whole table takes seconds.
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/device.h"

namespace galvani::kernels {

/// One kernel, compared.
struct KernelVerdict {
  std::string kernel;
  double worst = 0;  ///< largest error as a share of its bound; above 1 is wrong, and NaN is wrong
  std::string note;  ///< shape, or what differed
  bool ok() const { return worst <= 1; }
};

struct KernelCheck {
  const char* operation;
  /// Names of the kernels that `run` compares on such a part, known without one.
  std::vector<std::string> (*kernels)(const DeviceCaps& caps);
  /// Runs every kernel of the operation that this device runs, on data drawn from `seed`. An error is one that kept it
  /// from comparing.
  Result<std::vector<KernelVerdict>> (*run)(cuda::CudaDevice& device, uint64_t seed);
};

std::span<const KernelCheck> kernel_checks();

/// Kernels that have no result to compare.
bool computes_nothing(std::string_view kernel);

}  // namespace galvani::kernels
