#pragma once
/// JSON of config files, with the limits a hostile file needs.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "galvani/error.h"

namespace galvani::formats {

/// Parses `text`; errors name `label`, the line and the column. At most 64 levels deep, at most 64 MiB. Of a key given
/// twice the last one counts, as in Python's json.
Result<nlohmann::json> parse_json(std::string_view text, const std::string& label);
Result<nlohmann::json> read_json_file(const std::filesystem::path& path);

}  // namespace galvani::formats
