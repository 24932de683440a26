/// config.json of an MLX checkpoint.
#include <algorithm>

#include "core/error.h"
#include "quant/export_plan.h"

namespace galvani::quant {
namespace {

using nlohmann::ordered_json;

void set_missing(ordered_json& config, const char* key, const ordered_json& value) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) config[key] = value;
}

/// One rope_parameters object as the older rope_scaling; null where it scales nothing.
ordered_json scaling_of(const ordered_json& rope) {
  const std::string type = rope.value("rope_type", rope.value("type", std::string("default")));
  if (type == "default") return nullptr;
  ordered_json scaling = rope;
  scaling.erase("rope_theta");
  scaling["rope_type"] = type;
  return scaling;
}

void add_rope_keys(ordered_json& config) {
  const auto rope = config.find("rope_parameters");
  if (rope == config.end() || !rope->is_object()) return;
  const ordered_json parameters = *rope;
  const auto take = [&](const ordered_json& from, const char* key, const char* as) {
    if (from.is_object() && from.contains(key)) set_missing(config, as, from[key]);
  };
  if (parameters.contains("full_attention") || parameters.contains("sliding_attention")) {
    const ordered_json full = parameters.value("full_attention", ordered_json::object());
    take(full, "rope_theta", "rope_theta");
    take(parameters.value("sliding_attention", ordered_json::object()), "rope_theta", "rope_local_base_freq");
    if (full.is_object()) set_missing(config, "rope_scaling", scaling_of(full));
    return;
  }
  take(parameters, "rope_theta", "rope_theta");
  take(parameters, "partial_rotary_factor", "partial_rotary_factor");
  set_missing(config, "rope_scaling", scaling_of(parameters));
}

/// "every n-th layer is `full`" as n; nothing when the list is not of that form.
std::optional<int64_t> period_of(const ordered_json& types, const std::string& full) {
  if (!types.is_array()) return std::nullopt;
  const auto first = std::find(types.begin(), types.end(), full);
  const auto period = static_cast<size_t>(first - types.begin()) + 1;
  for (size_t i = 0; i < types.size(); ++i)
    if ((types[i] == full) != ((i + 1) % period == 0)) return std::nullopt;
  return static_cast<int64_t>(period);
}

/// gemma4's per_layer_config as the older global_head_dim and num_global_key_value_heads. Error: one that says more
/// than these two, or not the same for exactly the full-attention layers.
Status add_gemma4_keys(ordered_json& config) {
  const auto layers = config.find("per_layer_config");
  if (layers == config.end() || !layers->is_object() || layers->empty()) return {};
  const ordered_json types = config.value("layer_types", ordered_json::array());
  const ordered_json first = layers->begin().value();
  bool good = types.is_array() && first.is_object();
  for (size_t i = 0; good && i < types.size(); ++i)
    good = layers->contains(std::to_string(i)) == (types[i] == "full_attention") &&
           (types[i] != "full_attention" || (*layers)[std::to_string(i)] == first);
  for (auto it = first.begin(); good && it != first.end(); ++it) {
    if (it.key() == "head_dim")
      set_missing(config, "global_head_dim", it.value());
    else if (it.key() == "num_key_value_heads")
      set_missing(config, "num_global_key_value_heads", it.value());
    else
      good = false;
  }
  if (good) return {};
  return fail(ErrorCode::kUnsupported,
              "per_layer_config sets more than head_dim and num_key_value_heads of the full-attention layers; an MLX "
              "checkpoint cannot say that");
}

}  // namespace

Result<ordered_json> export_config(const nlohmann::json& source, bool tied) {
  ordered_json config = source;
  for (const char* key : {"quantization", "quantization_config"}) config.erase(key);
  config["tie_word_embeddings"] = tied;
  std::string type = config.value("model_type", std::string());
  add_rope_keys(config);
  const auto same = [&](const char* from, const char* to) {
    if (config.contains(from)) set_missing(config, to, config[from]);
  };
  if (type == "qwen3_moe" || type == "olmoe") same("num_local_experts", "num_experts");
  if (type == "mixtral") same("num_experts", "num_local_experts");
  if (config.contains("hidden_size") && config.contains("num_attention_heads") &&
      config["num_attention_heads"].is_number_integer() && config["num_attention_heads"].get<int64_t>() > 0 &&
      config["hidden_size"].is_number_integer() && type != "deepseek_v3")
    set_missing(config, "head_dim",
                config["hidden_size"].get<int64_t>() / config["num_attention_heads"].get<int64_t>());
  if (type == "gemma3") type = "gemma3_text";  // the text model alone
  if (type.starts_with("gemma4")) type = "gemma4_text";
  config["model_type"] = type;
  if (type == "gemma4_text") GALVANI_TRY_VOID(add_gemma4_keys(config));

  // mlx-lm reads patterns, not lists, for these.
  const bool delta = type.starts_with("qwen3_5") || type == "qwen3_next";
  if ((type == "gemma3_text" || delta) && config.contains("layer_types")) {
    const auto period = period_of(config["layer_types"], "full_attention");
    if (!period)
      return fail(
          ErrorCode::kUnsupported,
          "layer_types is not a repeating pattern, and mlx-lm's {} knows only those; such a checkpoint cannot be "
          "written",
          type);
    set_missing(config, delta ? "full_attention_interval" : "sliding_window_pattern", *period);
  }
  if (!type.starts_with("qwen3_5")) return config;

  const bool moe = type.starts_with("qwen3_5_moe");
  ordered_json outer;
  outer["architectures"] = {moe ? "Qwen3_5MoeForConditionalGeneration" : "Qwen3_5ForConditionalGeneration"};
  outer["model_type"] = moe ? "qwen3_5_moe" : "qwen3_5";
  outer["tie_word_embeddings"] = tied;
  if (config.contains("eos_token_id")) outer["eos_token_id"] = config["eos_token_id"];
  config["model_type"] = moe ? "qwen3_5_moe_text" : "qwen3_5_text";
  outer["text_config"] = std::move(config);
  return outer;
}

}  // namespace galvani::quant
