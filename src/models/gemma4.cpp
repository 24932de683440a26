// Gemma 4 (models.md 3.8): dense, mixture of experts, and the edge models with per-layer inputs and shared keys and
// values. What the layers do is in blocks/gemma4_decoder; this file reads the config.
#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/log.h"
#include "models/blocks/common_config.h"
#include "models/blocks/gemma4_decoder.h"
#include "models/blocks/layer_types.h"
#include "models/families.h"

namespace galvani::models {
namespace {

using formats::ConfigReader;
using formats::RopeParams;

// The defaults of Gemma4TextConfig, which saved configs may leave out.
constexpr CommonDefaults kDefaults{.eps = 1e-6,
                                   .tied = true,
                                   .context = 131072,
                                   .hidden = 2304,
                                   .inner = 9216,
                                   .vocab = 262144,
                                   .layers = 30,
                                   .heads = 8,
                                   .kv_heads = 4,
                                   .head_dim = 256};
// Of gemma4_unified what differs from them.
constexpr int64_t kUnifiedContext = 262144, kUnifiedWindow = 1024, kDefaultWindow = 512;
constexpr int64_t kDefaultVocab = 262144, kDefaultGlobalHeadDim = 512, kDefaultPerLayerWidth = 256;

struct Heads {
  int kv_heads = 0, head_dim = 0;
};

Status check_heads(const ConfigReader& config, const Heads& heads, int all, size_t layer) {
  if (all % heads.kv_heads != 0)
    return fail(ErrorCode::kCorrupt, "{}: layer {}: num_attention_heads {} is not a multiple of {} key heads",
                config.label(), layer, all, heads.kv_heads);
  if (heads.head_dim % 2 != 0)
    return fail(ErrorCode::kCorrupt, "{}: layer {}: head_dim {} is odd; rotary embedding needs pairs", config.label(),
                layer, heads.head_dim);
  return {};
}

// {"5": {"head_dim": 512, "num_key_value_heads": 2}, …}: what differs from the model's own values, by layer index.
Status apply_per_layer_config(ConfigReader& config, std::vector<Heads>& heads) {
  const nlohmann::json& entries = config.raw("per_layer_config");
  const std::string where = config.label() + ": per_layer_config";
  if (!entries.is_object()) return fail(ErrorCode::kCorrupt, "{} must be an object with one entry a layer", where);
  for (const auto& [key, entry] : entries.items()) {
    const bool digits = !key.empty() && key.size() < 6 && key.find_first_not_of("0123456789") == std::string::npos;
    const size_t layer = digits ? std::stoul(key) : heads.size();
    if (layer >= heads.size())
      return fail(ErrorCode::kCorrupt, "{} has an entry '{}'; the model's layers are 0 to {}", where, key.substr(0, 80),
                  heads.size() - 1);
    if (!entry.is_object()) return fail(ErrorCode::kCorrupt, "{}.{} must be an object", where, layer);
    ConfigReader reader(entry, fmt::format("{}.{}", where, layer));
    Heads& own = heads[layer];
    GALVANI_TRY(const int64_t head_dim, reader.integer("head_dim", 2, 4096, own.head_dim));
    GALVANI_TRY(const int64_t kv_heads, reader.integer("num_key_value_heads", 1, 4096, own.kv_heads));
    own = {static_cast<int>(kv_heads), static_cast<int>(head_dim)};
    for (const auto& [name, value] : entry.items()) {
      const auto common = config.json().find(name);
      if (name == "head_dim" || name == "num_key_value_heads") continue;
      if (common != config.json().end() && *common == value) continue;
      return fail(ErrorCode::kUnsupported, "{}.{} sets '{}'; only head_dim and num_key_value_heads may differ by layer",
                  where, layer, name.substr(0, 80));
    }
  }
  return {};
}

// Heads by layer from either generation of keys: per_layer_config, or global_head_dim and num_global_key_value_heads,
// the latter honoured only beside attention_k_eq_v.
Result<std::vector<Heads>> read_heads(ConfigReader& config, const CommonConfig& common, const std::vector<int>& windows,
                                      bool k_eq_v) {
  std::vector<Heads> heads(windows.size(), {common.kv_heads, common.head_dim});
  GALVANI_TRY(const int64_t global_dim, config.integer("global_head_dim", 2, 4096, kDefaultGlobalHeadDim));
  GALVANI_TRY(int64_t global_kv, config.integer("num_global_key_value_heads", 1, 4096, common.kv_heads));
  if (!k_eq_v) global_kv = common.kv_heads;
  if (config.has("per_layer_config")) {
    GALVANI_TRY_VOID(apply_per_layer_config(config, heads));
  } else {
    for (size_t i = 0; i < heads.size(); ++i)
      if (windows[i] == 0) heads[i] = {static_cast<int>(global_kv), static_cast<int>(global_dim)};
  }
  for (size_t i = 0; i < heads.size(); ++i) GALVANI_TRY_VOID(check_heads(config, heads[i], common.heads, i));
  return heads;
}

// The last layer is full whatever layer_types says, as the reference has it.
Result<std::vector<int>> read_windows(ConfigReader& config, int layers, bool unified) {
  const int64_t window = unified ? kUnifiedWindow : kDefaultWindow;
  GALVANI_TRY(std::vector<int> windows,
              layer_windows(config, layers, {.default_pattern = 6, .default_window = window}));
  if (windows.back() != 0) {
    log_warn("{}: layer_types ends with sliding_attention; the last layer of this family is always full_attention",
             config.label());
    windows.back() = 0;
  }
  return windows;
}

// donor[i]: the layer whose keys and values layer i reads, -1 for its own. The last num_kv_shared_layers read the last
// layer of their own type before them.
Result<std::vector<int>> read_donors(ConfigReader& config, const std::vector<int>& windows,
                                     const std::vector<Heads>& heads) {
  const auto layers = static_cast<int64_t>(windows.size());
  GALVANI_TRY(const int64_t shared, config.integer("num_kv_shared_layers", 0, layers - 1, 0));
  const auto first = static_cast<size_t>(layers - shared);
  std::vector<int> donors(windows.size(), -1);
  for (size_t i = first; i < donors.size(); ++i) {
    int donor = static_cast<int>(first) - 1;
    while (donor >= 0 && (windows[static_cast<size_t>(donor)] > 0) != (windows[i] > 0)) --donor;
    if (donor < 0)
      return fail(ErrorCode::kCorrupt,
                  "{}: layer {} ({}) shares keys and values (num_kv_shared_layers {}), but no layer of its type stands "
                  "before layer {}",
                  config.label(), i, windows[i] > 0 ? "sliding_attention" : "full_attention", shared, first);
    const Heads& theirs = heads[static_cast<size_t>(donor)];
    if (theirs.head_dim != heads[i].head_dim || theirs.kv_heads != heads[i].kv_heads)
      return fail(ErrorCode::kCorrupt,
                  "{}: layer {} has {} key heads of {} but reads the keys of layer {}, which has {} of {}",
                  config.label(), i, heads[i].kv_heads, heads[i].head_dim, donor, theirs.kv_heads, theirs.head_dim);
    donors[i] = donor;
  }
  return donors;
}

Result<PerLayerSpec> read_per_layer(ConfigReader& config, const CommonConfig& common, const quant::Checkpoint& file) {
  PerLayerSpec spec{.hidden = common.hidden, .layers = common.layers, .eps = common.eps};
  // Left out of a config it is 256, null is 0; a file without the table has none either way.
  const int64_t fallback =
      config.json().contains("hidden_size_per_layer_input") || !file.has("model.embed_tokens_per_layer.weight")
          ? 0
          : kDefaultPerLayerWidth;
  GALVANI_TRY(spec.width, config.integer("hidden_size_per_layer_input", 0, int64_t{1} << 20, fallback));
  GALVANI_TRY(spec.vocab, config.vocabulary("vocab_size_per_layer_input", kDefaultVocab));
  return spec;
}

// Experts of every layer: softmax over all, the best top_k renormalised, each weight times its expert's own factor.
Result<std::optional<MoeSpec>> read_experts(ConfigReader& config, int64_t hidden, exec::Activation activation) {
  GALVANI_TRY(const bool enabled, config.boolean("enable_moe_block", false));
  if (!enabled) {  // the sizes stand in every config
    for (const char* key : {"num_experts", "top_k_experts", "moe_intermediate_size"}) config.mark_read(key);
    return std::optional<MoeSpec>{};
  }
  GALVANI_TRY(const int64_t count, config.integer("num_experts", 1, 65536));
  GALVANI_TRY(const int64_t active, config.integer("top_k_experts", 1, count));
  GALVANI_TRY(const int64_t inner, config.dimension("moe_intermediate_size"));
  // The names follow "model.layers.3".
  MoeSpec moe{.router = ".router.proj", .expert_scale = ".router.per_expert_scale", .activation = activation};
  moe.experts = {
      .count = static_cast<int>(count), .active = static_cast<int>(active), .hidden = hidden, .inner = inner};
  moe.routing.reads_residual = true;
  moe.routing.renormalize = true;
  return std::optional<MoeSpec>{std::move(moe)};
}

// Text is causal with "vision"; "all" would make it look ahead.
Status check_causal(ConfigReader& config) {
  const nlohmann::json& value = config.raw("use_bidirectional_attention");
  if (value.is_null() || value == false || value == "vision") return {};
  return fail(ErrorCode::kUnsupported,
              "{}: use_bidirectional_attention is {}; only \"vision\" and null are supported (text attends causally)",
              config.label(), value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 80));
}

struct Ropes {
  RopeParams full, sliding;
};

Result<Ropes> read_ropes(ConfigReader& config, bool any_sliding) {
  Ropes ropes{.full = {.type = formats::RopeType::kProportional, .theta = 1e6, .partial_rotary_factor = 0.25},
              .sliding = {.theta = 1e4}};
  if (!config.has("rope_parameters")) return ropes;
  // Elsewhere a missing type means "default"; here that would quietly turn the wrong pairs.
  const nlohmann::json& parameters = config.raw("rope_parameters");
  const auto own = parameters.find("full_attention");
  const nlohmann::json& entry = own == parameters.end() ? parameters : *own;
  if (entry.is_object() && !entry.contains("rope_type") && !entry.contains("type"))
    return fail(ErrorCode::kNotFound,
                "{}: rope_parameters name no rope_type for full_attention layers; Gemma 4's is "
                "\"proportional\"",
                config.label());
  GALVANI_TRY(ropes.full, formats::parse_rope(config, "full_attention", {.theta = 1e6}));
  if (any_sliding) {
    GALVANI_TRY(ropes.sliding, formats::parse_rope(config, "sliding_attention", {.theta = 1e4, .local_theta = 1e4}));
  }
  return ropes;
}

// One rope for each type of layer and head dimension. rope_freqs.weight of GGUF files belongs to the full layers.
class RopeLoader {
 public:
  RopeLoader(Loader& loader, const Ropes& ropes) : loader_(loader), ropes_(ropes) {}
  Result<exec::RopeRef> of(bool sliding, int head_dim) {
    const auto known = loaded_.find({sliding, head_dim});
    if (known != loaded_.end()) return known->second;
    GALVANI_TRY(const exec::RopeRef rope,
                load_rope(loader_, sliding ? ropes_.sliding : ropes_.full, head_dim, !sliding));
    loaded_[{sliding, head_dim}] = rope;
    return rope;
  }

 private:
  Loader& loader_;
  const Ropes& ropes_;
  std::map<std::pair<bool, int>, exec::RopeRef> loaded_;
};

}  // namespace

Result<std::unique_ptr<Model>> load_gemma4(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress) {
  ConfigReader config(checkpoint.config(), checkpoint.path().string());
  GALVANI_TRY(const std::string type, config.string("model_type", ""));
  const bool unified = type.starts_with("gemma4_unified");
  CommonDefaults defaults = kDefaults;
  if (unified) defaults.context = kUnifiedContext;
  GALVANI_TRY(const CommonConfig common, read_common(config, defaults));
  GALVANI_TRY(const exec::Activation activation, read_activation(config, "hidden_activation", "gelu_pytorch_tanh"));
  GALVANI_TRY(const bool bias, config.boolean("attention_bias", false));
  GALVANI_TRY(const bool k_eq_v, config.boolean("attention_k_eq_v", false));
  GALVANI_TRY(const bool double_wide, config.boolean("use_double_wide_mlp", false));
  GALVANI_TRY(const double softcap, config.number("final_logit_softcapping", 0, 1e9, 0.0));
  GALVANI_TRY_VOID(check_causal(config));
  GALVANI_TRY(const std::vector<int> windows, read_windows(config, common.layers, unified));
  GALVANI_TRY(const std::vector<Heads> heads, read_heads(config, common, windows, k_eq_v));
  GALVANI_TRY(const std::vector<int> donors, read_donors(config, windows, heads));
  const bool any_sliding = std::any_of(windows.begin(), windows.end(), [](int window) { return window > 0; });
  GALVANI_TRY(const Ropes ropes, read_ropes(config, any_sliding));
  Gemma4Spec spec{.info = model_info("gemma4", common, checkpoint),
                  .ends = ends_spec(common),
                  .activation = activation,
                  .eps = common.eps};
  spec.ends.embed_scale = gemma_embed_scale(common.hidden);
  spec.ends.softcap = static_cast<float>(softcap);
  GALVANI_TRY(spec.per_layer, read_per_layer(config, common, checkpoint));
  GALVANI_TRY(spec.moe, read_experts(config, common.hidden, activation));
  GALVANI_TRY_VOID(config.finish());

  Loader loader(checkpoint, ops, common.layers, progress);
  RopeLoader rope_loader(loader, ropes);
  for (size_t i = 0; i < windows.size(); ++i) {
    const bool sliding = windows[i] > 0;
    GALVANI_TRY(const exec::RopeRef rope, rope_loader.of(sliding, heads[i].head_dim));
    AttentionSpec attention = attention_spec(common, rope);
    attention.kv_heads = heads[i].kv_heads;
    attention.head_dim = heads[i].head_dim;
    attention.window = windows[i];
    attention.qkv_bias = attention.out_bias = bias;
    attention.qk_norm = attention.v_norm = true;
    attention.v_from_k = k_eq_v && !sliding;
    attention.reuse_kv = donors[i] >= 0;
    attention.scale = 1.0f;
    const int64_t inner = common.inner * (double_wide && donors[i] >= 0 ? 2 : 1);
    spec.layers.push_back({.attention = attention, .inner = inner, .donor = donors[i]});
  }
  return load_gemma4_decoder(std::move(spec), loader);
}

}  // namespace galvani::models
