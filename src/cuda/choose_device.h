#pragma once
/// What --device means on this machine: auto, cpu, cuda or cuda:N.
#include <string>
#include <string_view>

#include "galvani/error.h"

namespace galvani::cuda {

struct DeviceRequest {
  enum class Kind { kAuto, kCpu, kCuda };
  Kind kind = Kind::kAuto;
  int index = 0;

  constexpr bool operator==(const DeviceRequest&) const = default;
};

/// The words of --device. Errors: kInvalidArgument with what is allowed.
Result<DeviceRequest> parse_device(std::string_view text);

struct DeviceChoice {
  bool gpu = false;
  int index = 0;
  std::string note;       ///< with auto on the CPU: why no GPU is used; else empty
  bool unusable = false;  ///< there is a GPU, and this binary cannot use it
};

/// Decides for this machine and this binary. `auto` takes GPU 0 when there is one that this binary has code for, and
/// else the CPU; `cuda` insists. Errors: kUnsupported and kOutOfRange, in words (driver_state, check_coverage).
Result<DeviceChoice> choose_device(const DeviceRequest& request);

/// Compute capability of a GPU, 10 × major + minor, and its name. Creates no context.
struct DeviceIdentity {
  int cc = 0;
  std::string name;
};
Result<DeviceIdentity> device_identity(int index);

}  // namespace galvani::cuda
