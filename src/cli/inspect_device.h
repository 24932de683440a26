#pragma once
#include <string>

#include "device/device_caps.h"
#include "exec/recording_ops.h"
#include "exec/state.h"
#include "models/model.h"

namespace galvani::cli {

/// A GPU that plans are asked for; it need not be here.
struct DeviceTarget {
  std::string title;
  DeviceCaps caps;
};

/// `device`: a part's name ("v100", "RTX 5090"), or cuda, cuda:N for the one in this machine. Errors: kInvalidArgument
/// with the names that are known; for cuda what CudaDevice::open says.
Result<DeviceTarget> find_device_target(const std::string& device);

/// Prints whether the model would run there and what stands in the way, what memory that takes with the sequences of
/// `state`, whose keys and values have the type that they would have there, then what runs for each of its calls.
void print_device_plans(const DeviceTarget& target, const models::Model& model, exec::RecordingOps& ops,
                        const exec::StateOptions& state);

}  // namespace galvani::cli
