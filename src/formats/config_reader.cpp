#include "formats/config_reader.h"

#include <cmath>

#include "core/error.h"
#include "core/log.h"
#include "formats/quoted.h"

namespace galvani::formats {
namespace {

/// A value's text for messages, short.
std::string show(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (text.size() > 80) text = text.substr(0, 80) + "...";
  return text;
}

std::optional<int64_t> as_integer(const nlohmann::json& value) {
  if (value.is_number_unsigned()) {
    const auto number = value.get<uint64_t>();
    return number <= INT64_MAX ? std::optional<int64_t>(static_cast<int64_t>(number)) : std::nullopt;
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  if (!value.is_number_float()) return std::nullopt;
  const double number = value.get<double>();
  if (!(std::abs(number) < 0x1p53) || number != std::floor(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

const nlohmann::json* ConfigReader::find(const std::string& key) {
  read_.insert(key);
  if (!config_.is_object()) return nullptr;
  const auto it = config_.find(key);
  return it == config_.end() || it->is_null() ? nullptr : &*it;
}

bool ConfigReader::has(const std::string& key) const {
  if (!config_.is_object()) return false;
  const auto it = config_.find(key);
  return it != config_.end() && !it->is_null();
}

const nlohmann::json& ConfigReader::raw(const std::string& key) {
  static const nlohmann::json kNull;
  const auto* value = find(key);
  return value == nullptr ? kNull : *value;
}

Result<int64_t> ConfigReader::integer(const std::string& key, int64_t low, int64_t high,
                                      std::optional<int64_t> fallback) {
  const auto* value = find(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return fail(ErrorCode::kNotFound, "{}: needs the key {} (an integer from {} to {})", label_, quote(key), low, high);
  }
  const auto number = as_integer(*value);
  if (!number || *number < low || *number > high)
    return fail(ErrorCode::kCorrupt, "{}: {} is {}; it must be an integer from {} to {}", label_, quote(key),
                show(*value), low, high);
  return *number;
}

Result<double> ConfigReader::number(const std::string& key, double low, double high, std::optional<double> fallback) {
  const auto* value = find(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return fail(ErrorCode::kNotFound, "{}: needs the key {} (a number from {} to {})", label_, quote(key), low, high);
  }
  const double number = value->is_number() ? value->get<double>() : std::nan("");
  if (!(number >= low && number <= high) || std::isinf(number))
    return fail(ErrorCode::kCorrupt, "{}: {} is {}; it must be a number from {} to {}", label_, quote(key),
                show(*value), low, high);
  return number;
}

Result<bool> ConfigReader::boolean(const std::string& key, std::optional<bool> fallback) {
  const auto* value = find(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return fail(ErrorCode::kNotFound, "{}: needs the key {} (true or false)", label_, quote(key));
  }
  if (!value->is_boolean())
    return fail(ErrorCode::kCorrupt, "{}: {} is {}; it must be true or false", label_, quote(key), show(*value));
  return value->get<bool>();
}

Result<std::string> ConfigReader::string(const std::string& key, std::optional<std::string> fallback) {
  const auto* value = find(key);
  if (value == nullptr) {
    if (fallback) return *fallback;
    return fail(ErrorCode::kNotFound, "{}: needs the key {} (a string)", label_, quote(key));
  }
  if (!value->is_string())
    return fail(ErrorCode::kCorrupt, "{}: {} is {}; it must be a string", label_, quote(key), show(*value));
  return value->get<std::string>();
}

Result<std::vector<std::string>> ConfigReader::strings(const std::string& key) {
  const auto* value = find(key);
  std::vector<std::string> result;
  if (value == nullptr) return result;
  if (!value->is_array())
    return fail(ErrorCode::kCorrupt, "{}: {} is {}; it must be a list of strings", label_, quote(key), show(*value));
  for (const auto& item : *value) {
    if (!item.is_string())
      return fail(ErrorCode::kCorrupt, "{}: {} holds {}; it must be a list of strings", label_, quote(key), show(item));
    result.push_back(item.get<std::string>());
  }
  return result;
}

Result<std::vector<int64_t>> ConfigReader::integers(const std::string& key, int64_t low, int64_t high) {
  const auto* value = find(key);
  std::vector<int64_t> result;
  if (value == nullptr) return result;
  if (!value->is_array())
    return fail(ErrorCode::kCorrupt, "{}: {} is {}; it must be a list of integers", label_, quote(key), show(*value));
  for (const auto& item : *value) {
    const auto number = as_integer(item);
    if (!number || *number < low || *number > high)
      return fail(ErrorCode::kCorrupt, "{}: {} holds {}; its items must be integers from {} to {}", label_, quote(key),
                  show(item), low, high);
    result.push_back(*number);
  }
  return result;
}

Status ConfigReader::finish() const {
  std::string matters;
  for (const auto& [key, value] : config_.items())
    if (!read_.contains(key) && key_effect(key, value, config_) == KeyEffect::kMatters)
      matters += fmt::format("{}{} = {}", matters.empty() ? "" : ", ", quote(key), show(value));
  if (!matters.empty())
    return fail(
        ErrorCode::kUnsupported,
        "{}: {} would change the results, but this model family does not implement it here; refusing to run it wrong",
        label_, matters);
  std::string unknown;
  for (const auto& key : unknown_keys()) unknown += (unknown.empty() ? "" : ", ") + quote(key);
  if (!unknown.empty()) log_warn("{}: keys nobody here knows, ignored: {}", label_, unknown);
  return {};
}

std::vector<std::string> ConfigReader::unknown_keys() const {
  std::vector<std::string> result;
  if (!config_.is_object()) return result;
  for (const auto& [key, value] : config_.items())
    if (!read_.contains(key) && !value.is_null() && key_effect(key, value, config_) == KeyEffect::kUnknown)
      result.push_back(key);
  return result;
}

}  // namespace galvani::formats
