#pragma once
/// What folder and GGUF checkpoints share: the record of which tensors were asked for.
#include <set>
#include <string>
#include <vector>

#include "quant/checkpoint.h"
#include "quant/ignorable.h"

namespace galvani::quant {

/// Names that were handed out or waved through.
class TensorUse {
 public:
  void use(const std::string& name) { used_.insert(name); }
  void ignore_prefix(const std::string& prefix) { prefixes_.push_back(prefix); }
  bool idle(const std::string& name) const {
    if (used_.contains(name) || ignorable_tensor(name)) return false;
    for (const auto& prefix : prefixes_)
      if (name.starts_with(prefix)) return false;
    return true;
  }

 private:
  std::set<std::string> used_;
  std::vector<std::string> prefixes_;
};

Result<std::shared_ptr<Checkpoint>> open_folder_checkpoint(const std::filesystem::path& folder);
Result<std::shared_ptr<Checkpoint>> open_gguf_checkpoint(const std::filesystem::path& file);

}  // namespace galvani::quant
