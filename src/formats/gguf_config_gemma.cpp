/// Gemma 3 and 4 out of GGUF metadata.
#include <algorithm>

#include "core/error.h"
#include "formats/gguf_arch_reader.h"
#include "formats/quoted.h"

namespace galvani::formats {
namespace {

using nlohmann::json;

/// Which layers slide: an integer pattern n (every n-th layer is full) or a list of bools.
Result<json> read_layer_types(ArchReader& keys, int64_t layers) {
  const std::string key = keys.full("attention.sliding_window_pattern");
  const auto& file = keys.file();
  const auto it = file.metadata().find(key);
  json types = json::array();
  const auto add = [&](bool sliding) { types.push_back(sliding ? "sliding_attention" : "full_attention"); };
  if (it != file.metadata().end() && it->second.type == GgufType::kArray) {
    GALVANI_TRY(const auto sliding, file.booleans(key));
    if (static_cast<int64_t>(sliding.size()) != layers)
      return fail(ErrorCode::kCorrupt, "{}: {} has {} entries for {} layers", file.label(), quote(key), sliding.size(),
                  layers);
    for (bool one : sliding) add(one);
    return types;
  }
  GALVANI_TRY(const int64_t pattern, keys.integer("attention.sliding_window_pattern", 1, kMostLayers, 6));
  for (int64_t i = 0; i < layers; ++i) add((i + 1) % pattern != 0);
  return types;
}

}  // namespace

Status add_gemma3(ArchReader& keys, json& config) {
  config["model_type"] = "gemma3_text";
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["attention_bias"] = keys.file().find("blk.0.attn_q.bias") != nullptr;
  GALVANI_TRY(config["sliding_window"], keys.integer("attention.sliding_window", 1, kLargest));
  GALVANI_TRY(config["layer_types"], read_layer_types(keys, config["num_hidden_layers"].get<int64_t>()));
  json full = json::object(), sliding = json::object();
  GALVANI_TRY(full["rope_theta"], keys.number("rope.freq_base", 1, 1e18, 10000.0));
  GALVANI_TRY_VOID(add_rope_scaling(keys, full));
  GALVANI_TRY(sliding["rope_theta"], keys.number("rope.freq_base_swa", 1, 1e18, 10000.0));
  sliding["rope_type"] = "default";
  config["rope_parameters"] = {{"full_attention", full}, {"sliding_attention", sliding}};
  // The 27B model scales by hidden/heads (168), all others by the head dimension; files rarely say.
  const int64_t heads = config["num_attention_heads"].get<int64_t>(), hidden = config["hidden_size"].get<int64_t>();
  const bool is_27b = config["num_hidden_layers"].get<int64_t>() == 62;
  double scalar = is_27b ? static_cast<double>(hidden / heads) : config["head_dim"].get<double>();
  if (keys.has("attention.scale")) {
    GALVANI_TRY(const double scale, keys.number("attention.scale", 1e-9, 1e9));
    scalar = 1.0 / (scale * scale);
  }
  config["query_pre_attn_scalar"] = scalar;
  return {};
}

namespace {

/// Heads by layer: sliding layers as the model's own values, layers that differ in per_layer_config.
Status add_gemma4_heads(ArchReader& keys, json& config) {
  const json& types = config["layer_types"];
  const auto sliding = [&](size_t layer) { return types[layer] == "sliding_attention"; };
  const int64_t full_dim = config["head_dim"].get<int64_t>();
  GALVANI_TRY(const int64_t sliding_dim, keys.integer("attention.key_length_swa", 1, 65536, full_dim));
  GALVANI_TRY(const int64_t value_dim, keys.integer("attention.value_length_swa", 1, 65536, sliding_dim));
  if (value_dim != sliding_dim)
    return fail(ErrorCode::kUnsupported,
                "{}: sliding layers have keys of {} and values of {} dimensions a head; they "
                "must be equal",
                keys.file().label(), sliding_dim, value_dim);
  std::vector<int64_t> kv_heads(types.size(), config["num_key_value_heads"].get<int64_t>());
  if (keys.has("attention.head_count_kv")) {
    GALVANI_TRY(kv_heads, keys.per_layer("attention.head_count_kv", static_cast<int64_t>(types.size())));
  }
  size_t first = 0;
  while (first + 1 < types.size() && !sliding(first)) ++first;
  config["head_dim"] = sliding_dim;
  config["num_key_value_heads"] = kv_heads[first];
  json entries = json::object();
  for (size_t i = 0; i < types.size(); ++i) {
    json entry = json::object();
    if (!sliding(i)) entry["head_dim"] = full_dim;
    if (kv_heads[i] != kv_heads[first]) entry["num_key_value_heads"] = kv_heads[i];
    if (!entry.empty()) entries[std::to_string(i)] = entry;
  }
  config["per_layer_config"] = entries;
  GALVANI_TRY(const int64_t rotary, keys.integer("rope.dimension_count_swa", 1, 65536, sliding_dim));
  json full{{"rope_type", "default"}}, local{{"rope_type", "default"}};
  GALVANI_TRY(full["rope_theta"], keys.number("rope.freq_base", 1, 1e18, 1e6));
  GALVANI_TRY_VOID(add_rope_scaling(keys, full));
  GALVANI_TRY(local["rope_theta"], keys.number("rope.freq_base_swa", 1, 1e18, 10000.0));
  if (rotary != sliding_dim)
    local["partial_rotary_factor"] = static_cast<double>(rotary) / static_cast<double>(sliding_dim);
  config["rope_parameters"] = {{"full_attention", full}, {"sliding_attention", local}};
  return {};
}

/// The last layers read the keys and values of earlier ones and may have an MLP twice as wide.
Status add_gemma4_sharing(ArchReader& keys, json& config) {
  const auto& file = keys.file();
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  GALVANI_TRY(const int64_t shared, keys.integer("attention.shared_kv_layers", 0, layers - 1, 0));
  config["num_kv_shared_layers"] = shared;
  GALVANI_TRY(const auto widths, keys.per_layer("feed_forward_length", layers));
  const int64_t width = widths.front();
  const bool wide = shared > 0 && widths.back() == 2 * width;
  for (int64_t i = 0; i < layers; ++i) {
    const int64_t expected = wide && i >= layers - shared ? 2 * width : width;
    if (widths[static_cast<size_t>(i)] != expected)
      return fail(ErrorCode::kUnsupported,
                  "{}: feed_forward_length of layer {} is {}, expected {}; all layers have one width, or the {} that "
                  "share keys and values twice that",
                  file.label(), i, widths[static_cast<size_t>(i)], expected, shared);
  }
  config["use_double_wide_mlp"] = wide;
  // Full layers without a value projection take their keys' (attention_k_eq_v).
  config["attention_k_eq_v"] = false;
  for (int64_t i = 0; i < layers - shared; ++i) {
    if (config["layer_types"][static_cast<size_t>(i)] != "full_attention") continue;
    config["attention_k_eq_v"] = file.find(fmt::format("blk.{}.attn_v.weight", i)) == nullptr;
    break;
  }
  return {};
}

}  // namespace

Status add_gemma4(ArchReader& keys, json& config) {
  const auto& file = keys.file();
  config["model_type"] = "gemma4_text";
  config["hidden_activation"] = "gelu_pytorch_tanh";
  config["attention_bias"] = file.find("blk.0.attn_q.bias") != nullptr;
  GALVANI_TRY(config["sliding_window"], keys.integer("attention.sliding_window", 1, kLargest));
  if (!keys.has("attention.sliding_window_pattern"))
    return fail(ErrorCode::kNotFound, "{}: needs the key {} (one bool a layer)", file.label(),
                quote(keys.full("attention.sliding_window_pattern")));
  GALVANI_TRY(config["layer_types"], read_layer_types(keys, config["num_hidden_layers"].get<int64_t>()));
  GALVANI_TRY_VOID(add_gemma4_heads(keys, config));
  GALVANI_TRY_VOID(add_gemma4_sharing(keys, config));
  // The dead pairs of proportional rope are factors of 1e30.
  if (file.find("rope_freqs.weight") == nullptr)
    return fail(ErrorCode::kNotFound,
                "{}: needs the tensor rope_freqs.weight, which says which pairs of the full "
                "layers turn; convert the model again with a current converter",
                file.label());
  GALVANI_TRY(config["hidden_size_per_layer_input"], keys.integer("embedding_length_per_layer_input", 0, kLargest, 0));
  if (const auto* table = file.find("per_layer_token_embd.weight"); table != nullptr && table->shape.rank() == 2)
    config["vocab_size_per_layer_input"] = table->shape[0];
  GALVANI_TRY(const int64_t experts, keys.integer("expert_count", 0, 65536, 0));
  config["enable_moe_block"] = experts > 0;
  if (experts > 0) {
    GALVANI_TRY(config["top_k_experts"], keys.integer("expert_used_count", 1, experts));
    GALVANI_TRY(config["moe_intermediate_size"], keys.integer("expert_feed_forward_length", 1, kLargest));
  }
  if (keys.has("attention.scale")) {
    GALVANI_TRY(const double scale, keys.number("attention.scale", 0, 1e6));
    if (scale != 1.0) config["attention_multiplier"] = scale;
  }
  return {};
}

}  // namespace galvani::formats
