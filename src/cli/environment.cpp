#include "cli/environment.h"

#include <cstdlib>

#include "core/error.h"

namespace galvani::cli {
namespace {

Result<bool> flag(const char* name) {
  const std::string value = environment(name);
  if (value.empty() || value == "0") return false;
  if (value == "1") return true;
  return fail(ErrorCode::kInvalidArgument, "{}={}: allowed are 0 and 1", name, value);
}

}  // namespace

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<DebugSwitches> debug_switches() {
  DebugSwitches switches;
  GALVANI_TRY(switches.poison, flag("GALVANI_POISON"));
  GALVANI_TRY(switches.cuda_sync, flag("GALVANI_CUDA_SYNC"));
  const std::string trace = environment("GALVANI_TRACE");
  if (!trace.empty() && trace != "plan")
    return fail(ErrorCode::kInvalidArgument, "GALVANI_TRACE={}: allowed is plan", trace);
  switches.trace_plan = trace == "plan";
  return switches;
}

cuda::CudaOptions cuda_options(const DebugSwitches& switches) {
  cuda::CudaOptions options;
  options.poison = switches.poison;
  options.trace_plan = switches.trace_plan;
  options.sync_every_launch = switches.cuda_sync;
  return options;
}

}  // namespace galvani::cli
