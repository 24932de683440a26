#pragma once
#include <string>

#include "core/dtype.h"
#include "device/device_caps.h"
#include "exec/recording_ops.h"
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

/// Prints whether the model would run there and what stands in the way, then what runs for each of its calls.
void print_device_plans(const DeviceTarget& target, const models::Model& model, exec::RecordingOps& ops, DType kv);

}  // namespace galvani::cli
