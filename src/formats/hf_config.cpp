#include "formats/hf_config.h"

#include <limits>

#include "core/error.h"
#include "formats/json_file.h"

namespace galvani::formats {
namespace {

Status read_eos(const nlohmann::json& object, const std::string& label, std::vector<int32_t>& ids) {
  const auto it = object.find("eos_token_id");
  if (it == object.end() || it->is_null()) return {};
  std::vector<int32_t> found;
  const auto take = [&](const nlohmann::json& value) {
    if (!value.is_number_integer()) return false;
    if (value.is_number_unsigned() && value.get<uint64_t>() > std::numeric_limits<int32_t>::max()) return false;
    const int64_t id = value.get<int64_t>();
    if (id < 0 || id > std::numeric_limits<int32_t>::max()) return false;
    found.push_back(static_cast<int32_t>(id));
    return true;
  };
  bool good = true;
  if (it->is_array())
    for (const auto& value : *it) good = good && take(value);
  else
    good = take(*it);
  if (!good) return fail(ErrorCode::kCorrupt, "{}: eos_token_id must be an id >= 0 or a list of them", label);
  if (!found.empty()) ids = std::move(found);
  return {};
}

}  // namespace

Result<nlohmann::json> merge_text_config(nlohmann::json config, const std::string& label) {
  if (!config.is_object()) return fail(ErrorCode::kCorrupt, "{}: must hold a JSON object", label);
  const auto nested = config.find("text_config");
  if (nested == config.end() || nested->is_null()) return config;
  if (!nested->is_object()) return fail(ErrorCode::kCorrupt, "{}: text_config must be an object", label);
  nlohmann::json merged = *nested;
  for (const char* key :
       {"model_type", "architectures", "tie_word_embeddings", "quantization", "quantization_config", "eos_token_id",
        "bos_token_id", "pad_token_id", "dtype", "torch_dtype", "image_token_id", "image_token_index", "audio_token_id",
        "video_token_id", "boi_token_index", "eoi_token_index"}) {
    const auto top = config.find(key);
    const auto own = merged.find(key);
    if (top != config.end() && (own == merged.end() || own->is_null())) merged[key] = *top;
  }
  // Gemma 4's wrappers keep the language model's vocabulary at the top level (mlx-lm's gemma4.py).
  const auto type = config.find("model_type");
  const auto vocab = config.find("vocab_size");
  if (vocab != config.end() && !vocab->is_null() && type != config.end() && type->is_string() &&
      type->get_ref<const std::string&>().starts_with("gemma4"))
    merged["vocab_size"] = *vocab;
  return merged;
}

Result<HfConfig> make_hf_config(nlohmann::json config, nlohmann::json generation, const std::string& label) {
  HfConfig result;
  GALVANI_TRY(result.config, merge_text_config(std::move(config), label));
  if (!generation.is_object())
    return fail(ErrorCode::kCorrupt, "{}: generation_config.json must hold a JSON object", label);
  GALVANI_TRY_VOID(read_eos(result.config, label, result.eos_ids));
  GALVANI_TRY_VOID(read_eos(generation, "generation_config.json beside " + label, result.eos_ids));
  result.generation = std::move(generation);
  return result;
}

bool is_hf_config_file(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored) ||
         (path.filename() == "config.json" && !std::filesystem::is_directory(path, ignored));
}

Result<HfConfig> read_hf_config(const std::filesystem::path& folder_or_file) {
  const auto path = is_hf_config_file(folder_or_file) ? folder_or_file : folder_or_file / "config.json";
  const auto folder = path.parent_path();
  GALVANI_TRY(auto config, read_json_file(path));
  nlohmann::json generation = nlohmann::json::object();
  std::error_code ignored;
  if (std::filesystem::exists(folder / "generation_config.json", ignored)) {
    GALVANI_TRY(generation, read_json_file(folder / "generation_config.json"));
  }
  return make_hf_config(std::move(config), std::move(generation), path.string());
}

}  // namespace galvani::formats
