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

/// Reads both files of `folder`; generation_config.json is optional.
Result<HfConfig> read_hf_config(const std::filesystem::path& folder);
/// The same from parsed JSON; `label` names the config file in messages.
Result<HfConfig> make_hf_config(nlohmann::json config, nlohmann::json generation, const std::string& label);

/// Wrapper configs nest the language model in text_config: start from it and take from the top level what it lacks of
/// tie_word_embeddings, quantization, quantization_config, model_type, special token ids (models.md 1.1). A flat config
/// is returned as it is.
Result<nlohmann::json> merge_text_config(nlohmann::json config, const std::string& label);

}  // namespace galvani::formats
