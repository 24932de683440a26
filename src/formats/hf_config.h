#pragma once
/// config.json and generation_config.json of a Hugging Face or MLX folder.
#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <vector>

#include "formats/config_reader.h"
#include "formats/rope_config.h"
#include "galvani/error.h"

namespace galvani::formats {

struct HfConfig {
  nlohmann::json config;      ///< the language model's keys, see merge_text_config
  nlohmann::json generation;  ///< generation_config.json, or an empty object
  std::vector<int32_t> eos_ids;
};

/// Whether a path is meant as a config file itself, of any name, and not as a folder that holds config.json.
bool is_hf_config_file(const std::filesystem::path& path);

/// Reads config.json of a folder, or a config file itself, and generation_config.json beside it, which is optional.
Result<HfConfig> read_hf_config(const std::filesystem::path& folder_or_file);
/// The same from parsed JSON; `label` names the config file in messages.
Result<HfConfig> make_hf_config(nlohmann::json config, nlohmann::json generation, const std::string& label);

/// Wrapper configs nest the language model in text_config: start from it and take from the top level what it lacks of
/// tie_word_embeddings, quantization, quantization_config, model_type, special token ids (models.md 1.1). A flat config
/// is returned as it is.
Result<nlohmann::json> merge_text_config(nlohmann::json config, const std::string& label);

}  // namespace galvani::formats
