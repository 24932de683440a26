#pragma once
#include <string>

#include "core/dtype.h"
#include "exec/recording_ops.h"
#include "models/model.h"

namespace galvani::cli {

/// Prints what a GPU would run for each call of a model: `device` is a part's name ("v100", "h200"; it need not be
/// here), or cuda, cuda:N for the one in this machine. Errors: kInvalidArgument with the names that are known.
Status print_device_plans(const std::string& device, const models::Model& model, exec::RecordingOps& ops, DType kv);

}  // namespace galvani::cli
