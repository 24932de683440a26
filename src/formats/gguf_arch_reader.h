#pragma once
/// Inside src/formats: GGUF metadata of one architecture, and what the files that read it share.
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "formats/gguf.h"
#include "formats/quoted.h"

namespace galvani::formats {

constexpr int64_t kMostLayers = 4096, kLargest = int64_t{1} << 24;

/// Reads one architecture's keys and remembers them.
class ArchReader {
 public:
  ArchReader(const GgufFile& file, std::string architecture) : file_(file), prefix_(std::move(architecture) + ".") {}

  std::string full(std::string_view key) {
    used_.insert(prefix_ + std::string(key));
    return prefix_ + std::string(key);
  }
  bool has(std::string_view key) { return file_.has(full(key)); }
  Result<int64_t> integer(std::string_view key, int64_t low, int64_t high, std::optional<int64_t> fallback = {}) {
    GALVANI_TRY(const int64_t value, file_.integer(full(key), fallback));
    if (value < low || value > high)
      return fail(ErrorCode::kCorrupt, "{}: {} is {}; it must be from {} to {}", file_.label(), quote(full(key)), value,
                  low, high);
    return value;
  }
  /// f32 metadata is given the shortest decimal that rounds to it: 1e-06, not 9.99999997e-07.
  Result<double> number(std::string_view key, double low, double high, std::optional<double> fallback = {}) {
    GALVANI_TRY(double value, file_.number(full(key), fallback));
    const auto it = file_.metadata().find(full(key));
    if (it != file_.metadata().end() && it->second.type == GgufType::kF32)
      value = std::strtod(fmt::format("{}", static_cast<float>(value)).c_str(), nullptr);
    if (!(value >= low && value <= high))
      return fail(ErrorCode::kCorrupt, "{}: {} is {}; it must be from {} to {}", file_.label(), quote(full(key)), value,
                  low, high);
    return value;
  }
  /// These keys may hold another number for every layer; whoever named them reads them again by per_layer().
  void vary_by_layer(std::set<std::string, std::less<>> keys) { varying_ = std::move(keys); }
  /// A number or an array of one number a layer, which must all be equal; of a varying key the first layer's.
  Result<int64_t> uniform(std::string_view key, int64_t layers, std::optional<int64_t> fallback = {}) {
    if (fallback && !has(key)) return *fallback;
    GALVANI_TRY(const auto values, file_.integer_per_layer(full(key), layers));
    for (int64_t value : values)
      if ((value != values.front() && !varying_.contains(key)) || value < 1 || value > kLargest)
        return fail(ErrorCode::kUnsupported, "{}: {} must be from 1 to {} and the same in every layer; found {} and {}",
                    file_.label(), quote(full(key)), kLargest, values.front(), value);
    return values.front();
  }
  /// One value a layer, each from 1 on.
  Result<std::vector<int64_t>> per_layer(std::string_view key, int64_t layers) {
    return file_.integer_per_layer(full(key), layers);
  }
  const GgufFile& file() const { return file_; }

  /// Scalars under the prefix that were never asked for.
  void add_unknown(nlohmann::json& config) const {
    for (const auto& [key, value] : file_.metadata()) {
      if (!key.starts_with(prefix_) || used_.contains(key)) continue;
      if (const auto number = file_.number(key))
        config[key] = *number;
      else
        config[key] = gguf_type_name(value.type);
    }
  }

 private:
  const GgufFile& file_;
  std::string prefix_;
  std::set<std::string> used_;
  std::set<std::string, std::less<>> varying_;
};

/// rope.scaling.* as Hugging Face's rope dictionary; `rope` holds theta already.
Status add_rope_scaling(ArchReader& keys, nlohmann::json& rope);
/// What an architecture adds to the keys that all share.
Status add_gemma3(ArchReader& keys, nlohmann::json& config);
Status add_gemma4(ArchReader& keys, nlohmann::json& config);
/// qwen35, qwen35moe, qwen3next.
Status add_hybrid(ArchReader& keys, nlohmann::json& config, const std::string& architecture);

}  // namespace galvani::formats
