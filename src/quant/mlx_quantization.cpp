#include "quant/mlx_quantization.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/error.h"
#include "formats/config_reader.h"
#include "formats/quoted.h"
#include "quant/ignorable.h"

namespace galvani::quant {
namespace {

using formats::ConfigReader;
using formats::quote;
using nlohmann::json;

Result<ModuleQuantization> parse_one(const json& object, const std::string& where) {
  ConfigReader reader(object, where);
  ModuleQuantization result;
  GALVANI_TRY(result.mode, reader.string("mode", "affine"));
  struct Mode {
    const char* name;
    int64_t group, bits;
  };
  static constexpr Mode kModes[] = {{"affine", 64, 4}, {"mxfp4", 32, 4}, {"mxfp8", 32, 8}, {"nvfp4", 16, 4}};
  const auto* mode =
      std::find_if(std::begin(kModes), std::end(kModes), [&](const Mode& m) { return result.mode == m.name; });
  if (mode == std::end(kModes))
    return fail(ErrorCode::kUnsupported,
                "{}: quantization mode {} is not supported; supported are affine, mxfp4, mxfp8, nvfp4", where,
                quote(result.mode));
  GALVANI_TRY(const int64_t group, reader.integer("group_size", 1, 1 << 20, mode->group));
  GALVANI_TRY(const int64_t bits, reader.integer("bits", 1, 64, mode->bits));
  const bool affine = result.mode == "affine";
  const bool good_bits = affine ? (bits >= 2 && bits <= 8 && bits != 7) : bits == mode->bits;
  const bool good_group = affine ? (group == 16 || group == 32 || group == 64 || group == 128) : group == mode->group;
  if (!good_bits || !good_group)
    return fail(ErrorCode::kUnsupported,
                "{}: {} with {} bits in groups of {} is not supported; affine takes 2, 3, 4, 5, 6 or 8 bits in groups "
                "of 16, 32, 64 or "
                "128, mxfp4 4 in 32, mxfp8 8 in 32, nvfp4 4 in 16",
                where, result.mode, bits, group);
  result.bits = static_cast<int>(bits);
  result.group = static_cast<int>(group);
  return result;
}

/// fp8 as DeepSeek V3 is published: its matrices carry their scales beside them, nothing else has to be known.
Result<bool> block_fp8(const json& object, const std::string& where) {
  ConfigReader reader(object, where);
  GALVANI_TRY(const std::string method, reader.string("quant_method", ""));
  if (method != "fp8") return false;
  GALVANI_TRY(const std::string format, reader.string("fmt", "e4m3"));
  GALVANI_TRY(const std::vector<int64_t> block, reader.integers("weight_block_size", 1, 1 << 20));
  if (format != "e4m3" || block != std::vector<int64_t>{128, 128})
    return fail(ErrorCode::kUnsupported,
                "{}: quantization method 'fp8' with codes {} and weight_block_size {} is not supported; supported are "
                "'e4m3' and 128, 128",
                where, quote(format), block.empty() ? "missing" : fmt::format("{}", fmt::join(block, ", ")));
  return true;
}

}  // namespace

const ModuleQuantization* MlxQuantization::of(const std::string& module) const {
  const auto it = overrides.find(module);
  if (it != overrides.end()) return &it->second;
  return base ? &*base : nullptr;
}

Result<MlxQuantization> parse_mlx_quantization(const json& config, const std::string& label) {
  MlxQuantization result;
  const char* key = "quantization";
  auto it = config.find(key);
  if (it == config.end() || it->is_null()) {
    key = "quantization_config";
    it = config.find(key);
    if (it == config.end() || it->is_null()) return result;
    if (it->is_object()) {
      GALVANI_TRY(const bool fp8, block_fp8(*it, label + ": " + key));
      if (fp8) return result;
    }
    if (it->is_object() && (it->contains("quant_method") || !it->contains("bits"))) {
      const auto method = it->find("quant_method");
      // gpt-oss: its experts carry their format in their tensors' names (_blocks, _scales); nothing else is quantised.
      if (method != it->end() && *method == "mxfp4") return result;
      return fail(
          ErrorCode::kUnsupported,
          "{}: quantization method {} is not supported; use the original checkpoint, an MLX conversion or a GGUF file",
          label, method != it->end() && method->is_string() ? quote(method->get<std::string>()) : "without a name");
    }
  }
  const std::string where = label + ": " + key;
  if (!it->is_object()) return fail(ErrorCode::kCorrupt, "{}: must be an object", where);
  GALVANI_TRY(result.base, parse_one(*it, where));
  for (const auto& [module, value] : it->items()) {
    if (value.is_object()) {
      GALVANI_TRY(auto one, parse_one(value, where + "." + module));
      result.overrides[canonical_name(module)] = std::move(one);
    } else if (value.is_boolean() && !value.get<bool>()) {
      result.overrides[canonical_name(module)].off = true;
    }
  }
  return result;
}

}  // namespace galvani::quant
