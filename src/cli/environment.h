#pragma once
/// Every environment variable the program reads, parsed once; libraries get values.
#include <string>

#include "cuda/device.h"
#include "galvani/error.h"

namespace galvani::cli {

/// A variable's value, or "".
std::string environment(const char* name);

struct DebugSwitches {
  bool poison = false;      ///< GALVANI_POISON=1: fill outputs with NaN before they are computed
  bool trace_plan = false;  ///< GALVANI_TRACE=plan: log which kernel each operation takes
  bool cuda_sync = false;   ///< GALVANI_CUDA_SYNC=1: wait after each GPU launch, so that an error names its kernel
};
/// Errors: kInvalidArgument for a value that is not known, with those that are.
Result<DebugSwitches> debug_switches();

/// The switches as a GPU takes them.
cuda::CudaOptions cuda_options(const DebugSwitches& switches);

}  // namespace galvani::cli
