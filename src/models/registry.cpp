#include <fmt/ranges.h>
#include <algorithm>

#include "core/error.h"
#include "models/families.h"

namespace galvani::models {
namespace {

struct Row {
  const char* model_type;
  LoadFamily load;
};

// One a line, sorted.
// clang-format off
constexpr Row kFamilies[] = {
    {"deepseek_v3", load_deepseek_v3},
    {"gemma3", load_gemma3},
    {"gemma3_text", load_gemma3},
    {"gemma4", load_gemma4},
    {"gemma4_text", load_gemma4},
    {"gemma4_unified", load_gemma4},
    {"gemma4_unified_text", load_gemma4},
    {"gpt_oss", load_gpt_oss},
    {"llama", load_llama},
    {"mixtral", load_mixtral},
    {"olmoe", load_olmoe},
    {"qwen2", load_qwen2},
    {"qwen3", load_qwen3},
    {"qwen3_5", load_qwen3_5},
    {"qwen3_5_moe", load_qwen3_5_moe},
    {"qwen3_5_moe_text", load_qwen3_5_moe},
    {"qwen3_5_text", load_qwen3_5},
    {"qwen3_moe", load_qwen3_moe},
    {"qwen3_next", load_qwen3_next},
};
// clang-format on

/// Families that people ask for and that are not there.
constexpr const char* kNotSupported[] = {"jamba", "nemotron_h", "exaone_moe", "deepseek_v2", "deepseek_v4"};

}  // namespace

std::vector<std::string> supported_families() {
  std::vector<std::string> names;
  for (const Row& row : kFamilies) names.emplace_back(row.model_type);
  return names;
}

Result<std::unique_ptr<Model>> load_model(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress) {
  const auto found = checkpoint.config().find("model_type");
  if (found != checkpoint.config().end() && !found->is_string())
    return fail(ErrorCode::kCorrupt, "{}: model_type is {}; it must be the name of a family, one of {}",
                checkpoint.path().string(), found->dump(-1, ' ', true).substr(0, 60),
                fmt::join(supported_families(), ", "));
  if (found == checkpoint.config().end())
    return fail(ErrorCode::kCorrupt, "{}: the config has no model_type; supported: {}", checkpoint.path().string(),
                fmt::join(supported_families(), ", "));
  const auto& name = found->get_ref<const std::string&>();
  const auto row =
      std::find_if(std::begin(kFamilies), std::end(kFamilies), [&](const Row& r) { return name == r.model_type; });
  if (row == std::end(kFamilies))
    return fail(ErrorCode::kUnsupported, "{}: model_type '{}' is not supported; supported: {}; not supported: {}",
                checkpoint.path().string(), name, fmt::join(supported_families(), ", "),
                fmt::join(kNotSupported, ", "));
  return row->load(checkpoint, ops, progress);
}

}  // namespace galvani::models
