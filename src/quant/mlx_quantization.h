#pragma once
/// The `quantization` object of an MLX config: one default and per-module overrides (models.md 1.5).
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "quant/matrix_source.h"

namespace galvani::quant {

struct ModuleQuantization {
  bool off = false;  ///< the module is listed as `false`
  int bits = 0, group = 0;
  std::string mode = "affine";
};

struct MlxQuantization {
  std::optional<ModuleQuantization> base;
  std::map<std::string, ModuleQuantization> overrides;  ///< by canonical module name

  /// What the config says of a module: its override, else the default; null when the config has no quantization.
  const ModuleQuantization* of(const std::string& module) const;
  bool listed(const std::string& module) const { return overrides.contains(module); }
};

/// Reads config["quantization"] (or an MLX style quantization_config). fp8 in 128 × 128 blocks gives an empty
/// result: its tensors say it all. Errors: an unknown mode, bits or group size, and quantization methods of other tools
/// (gptq, awq, …), by name.
Result<MlxQuantization> parse_mlx_quantization(const nlohmann::json& config, const std::string& label);

}  // namespace galvani::quant
