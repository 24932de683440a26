#pragma once
/// Typed access to a model config that remembers what was read, so that a key which changes the arithmetic can never be
/// overlooked in silence.
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "galvani/error.h"

namespace galvani::formats {

/// A key that is absent or null counts as missing everywhere. Errors name the file, the key, what was found and what is
/// allowed. The JSON must outlive the reader.
class ConfigReader {
 public:
  ConfigReader(const nlohmann::json& config, std::string label) : config_(config), label_(std::move(label)) {}

  /// Present and not null? Does not count as reading.
  bool has(const std::string& key) const;
  /// The raw value, or null JSON when missing; counts as reading.
  const nlohmann::json& raw(const std::string& key);
  /// This key's meaning is taken care of elsewhere.
  void mark_read(const std::string& key) { read_.insert(key); }

  /// An integer in [low, high]; without `fallback` the key is required. 3.0 is an integer, 3.5 is not.
  Result<int64_t> integer(const std::string& key, int64_t low, int64_t high, std::optional<int64_t> fallback = {});
  /// A finite number in [low, high].
  Result<double> number(const std::string& key, double low, double high, std::optional<double> fallback = {});
  Result<bool> boolean(const std::string& key, std::optional<bool> fallback = {});
  Result<std::string> string(const std::string& key, std::optional<std::string> fallback = {});
  /// A list of strings or of integers in [low, high]; missing gives an empty list.
  Result<std::vector<std::string>> strings(const std::string& key);
  Result<std::vector<int64_t>> integers(const std::string& key, int64_t low, int64_t high);

  /// Sizes with the bounds that keep every later product inside 63 bits: 1 … 2^24 for dimensions, heads, experts and
  /// layers, 1 … 2^27 for vocabularies.
  Result<int64_t> dimension(const std::string& key, std::optional<int64_t> fallback = {}) {
    return integer(key, 1, int64_t{1} << 24, fallback);
  }
  Result<int64_t> vocabulary(const std::string& key, std::optional<int64_t> fallback = {}) {
    return integer(key, 1, int64_t{1} << 27, fallback);
  }

  /// After the last read. Error: a key that is known to change the arithmetic is present with a value that matters and
  /// nobody read it. Other keys that nobody read and that are not known to be harmless are listed in one warning.
  Status finish() const;
  /// What finish() would warn about (for tests and `inspect`).
  std::vector<std::string> unknown_keys() const;

  const std::string& label() const noexcept { return label_; }
  const nlohmann::json& json() const noexcept { return config_; }

 private:
  const nlohmann::json* find(const std::string& key);
  const nlohmann::json& config_;
  std::string label_;
  std::set<std::string> read_;
};

/// What is known of a config key that no model family asked for.
enum class KeyEffect {
  kUnknown,
  kHarmless,  ///< never changes a forward pass
  kNeutral,   ///< can change it, but not with this value
  kMatters,   ///< changes it with this value
};
/// `config` is the whole config: some keys matter only beside another one.
KeyEffect key_effect(const std::string& key, const nlohmann::json& value, const nlohmann::json& config);

}  // namespace galvani::formats
