#include "formats/gguf_config.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "formats/gguf_arch_reader.h"
#include "formats/gguf_names.h"
#include "formats/quoted.h"

namespace galvani::formats {
namespace {

using nlohmann::json;

/// Keys that other families use to scale things; refused by ConfigReader::finish() unless a family reads them.
Status add_multipliers(ArchReader& keys, json& config) {
  static constexpr std::pair<const char*, const char*> kPairs[] = {
      {"logit_scale", "logit_scale"},
      {"residual_scale", "residual_multiplier"},
      {"embedding_scale", "embedding_multiplier"},
      {"attention.clamp_kqv", "clip_qkv"},
      {"final_logit_softcapping", "final_logit_softcapping"},
      {"attn_logit_softcapping", "attn_logit_softcapping"},
      {"expert_count", "num_experts"}};
  for (const auto& [gguf, hf] : kPairs) {
    if (!keys.has(gguf)) continue;
    GALVANI_TRY(const double value, keys.number(gguf, -1e30, 1e30));
    if (value != 0) config[hf] = value;
  }
  return {};
}

Status add_common(ArchReader& keys, json& config) {
  const auto& file = keys.file();
  GALVANI_TRY(const int64_t layers, keys.integer("block_count", 1, kMostLayers));
  GALVANI_TRY(const int64_t hidden, keys.integer("embedding_length", 1, kLargest));
  GALVANI_TRY(const int64_t heads, keys.uniform("attention.head_count", layers));
  GALVANI_TRY(const int64_t kv_heads, keys.uniform("attention.head_count_kv", layers, heads));
  // Files of which every layer has experts may leave the dense width out.
  GALVANI_TRY(const int64_t experts_width, keys.integer("expert_feed_forward_length", 0, kLargest, 0));
  GALVANI_TRY(const int64_t feed_forward,
              keys.uniform("feed_forward_length", layers,
                           experts_width > 0 ? std::optional(experts_width) : std::optional<int64_t>()));
  GALVANI_TRY(const int64_t head_dim,
              keys.integer("attention.key_length", 1, 65536, std::max<int64_t>(hidden / heads, 1)));
  GALVANI_TRY(const int64_t value_dim, keys.integer("attention.value_length", 1, 65536, head_dim));
  if (value_dim != head_dim)
    return fail(ErrorCode::kUnsupported, "{}: keys of {} and values of {} dimensions a head; they must be equal",
                file.label(), head_dim, value_dim);
  GALVANI_TRY(const double eps, keys.number("attention.layer_norm_rms_epsilon", 0, 1));
  GALVANI_TRY(const int64_t context, keys.integer("context_length", 1, int64_t{1} << 40));
  GALVANI_TRY(const int64_t rotary, keys.integer("rope.dimension_count", 1, 65536, head_dim));
  config["num_hidden_layers"] = layers;
  config["hidden_size"] = hidden;
  config["num_attention_heads"] = heads;
  config["num_key_value_heads"] = kv_heads;
  config["intermediate_size"] = feed_forward;
  config["head_dim"] = head_dim;
  config["rms_norm_eps"] = eps;
  config["max_position_embeddings"] = context;
  if (rotary != head_dim) config["partial_rotary_factor"] = static_cast<double>(rotary) / static_cast<double>(head_dim);

  const auto* embedding = file.find("token_embd.weight");
  if (embedding == nullptr || embedding->shape.rank() != 2)
    return fail(ErrorCode::kCorrupt, "{}: needs a two-dimensional tensor token_embd.weight", file.label());
  config["vocab_size"] = embedding->shape[0];
  keys.full("vocab_size");
  config["tie_word_embeddings"] = file.find("output.weight") == nullptr;
  GALVANI_TRY_VOID(add_multipliers(keys, config));
  for (const auto& [gguf, hf] :
       {std::pair{"tokenizer.ggml.bos_token_id", "bos_token_id"}, {"tokenizer.ggml.padding_token_id", "pad_token_id"}})
    if (const auto id = file.integer(gguf)) config[hf] = *id;
  return {};
}

Status add_pre_norm(ArchReader& keys, json& config, const std::string& architecture) {
  config["model_type"] = architecture;
  config["hidden_act"] = "silu";
  json rope = json::object();
  GALVANI_TRY(rope["rope_theta"], keys.number("rope.freq_base", 1, 1e18, 10000.0));
  GALVANI_TRY_VOID(add_rope_scaling(keys, rope));
  config["rope_parameters"] = rope;
  GALVANI_TRY(const int64_t window, keys.integer("attention.sliding_window", 0, kLargest, 0));
  if (window > 0) config["sliding_window"] = window;
  if (architecture != "qwen2") config["attention_bias"] = keys.file().find("blk.0.attn_q.bias") != nullptr;
  if (architecture == "llama") config["mlp_bias"] = keys.file().find("blk.0.ffn_up.bias") != nullptr;
  if (architecture != "llama") config["use_sliding_window"] = window > 0;
  if (keys.has("attention.scale")) {
    GALVANI_TRY(config["attention_multiplier"], keys.number("attention.scale", 0, 1e6));
  }
  return {};
}

/// Experts as all architectures write them; `inner_key` is what the family calls their width.
Status add_experts(ArchReader& keys, json& config, const char* inner_key) {
  GALVANI_TRY(const int64_t experts, keys.integer("expert_count", 1, kLargest));
  config["num_experts"] = experts;
  GALVANI_TRY(config["num_experts_per_tok"], keys.integer("expert_used_count", 1, experts));
  const auto dense_width = config["intermediate_size"].get<int64_t>();
  GALVANI_TRY(config[inner_key], keys.integer("expert_feed_forward_length", 1, kLargest, dense_width));
  GALVANI_TRY(const double scale, keys.number("expert_weights_scale", -1e30, 1e30, 0.0));
  if (scale != 0 && scale != 1) config["routed_scaling_factor"] = scale;
  // 1 is softmax over all experts, 3 over the chosen ones, which is the same once they are renormalised.
  GALVANI_TRY(const int64_t gating, keys.integer("expert_gating_func", 0, 255, 1));
  if (gating != 0 && gating != 1 && gating != 3) config["scoring_func"] = fmt::format("gating function {}", gating);
  return {};
}

/// llama.cpp renormalises always; layers without a router are dense.
Status add_qwen3moe(ArchReader& keys, json& config) {
  GALVANI_TRY_VOID(add_pre_norm(keys, config, "qwen3_moe"));
  GALVANI_TRY_VOID(add_experts(keys, config, "moe_intermediate_size"));
  config["norm_topk_prob"] = true;
  if (keys.has("expert_weights_norm")) {
    GALVANI_TRY(config["norm_topk_prob"], keys.file().boolean(keys.full("expert_weights_norm")));
  }
  json dense = json::array();
  for (int64_t i = 0; i < config["num_hidden_layers"].get<int64_t>(); ++i)
    if (keys.file().find(fmt::format("blk.{}.ffn_gate_inp.weight", i)) == nullptr) dense.push_back(i);
  config["mlp_only_layers"] = dense;
  return {};
}

/// Every other layer slides, from the first on. ggml rounds yarn's ramp to whole dimensions; the model does not
/// (models.md 2), and it is the model that is followed.
Status add_gpt_oss(ArchReader& keys, json& config) {
  GALVANI_TRY_VOID(add_pre_norm(keys, config, "gpt_oss"));
  GALVANI_TRY_VOID(add_experts(keys, config, "intermediate_size"));
  config.erase("use_sliding_window");
  if (config["rope_parameters"]["rope_type"] == "yarn") config["rope_parameters"]["truncate"] = false;
  return {};
}

/// eos, end of turn and end of message by key; control tokens whose text ends a turn, since many files lack the keys.
Result<std::vector<int32_t>> read_eos(const GgufFile& file, int64_t vocabulary) {
  std::vector<int32_t> ids;
  const auto add = [&](int64_t id) {
    if (id >= 0 && id < vocabulary && std::find(ids.begin(), ids.end(), id) == ids.end())
      ids.push_back(static_cast<int32_t>(id));
  };
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    GALVANI_TRY(const int64_t id, file.integer(key, -1));
    if (id >= vocabulary)
      return fail(ErrorCode::kCorrupt, "{}: {} is {}, beyond the vocabulary of {}", file.label(), quote(key), id,
                  vocabulary);
    add(id);
  }
  if (!file.has("tokenizer.ggml.tokens") || !file.has("tokenizer.ggml.token_type")) return ids;
  GALVANI_TRY(const auto tokens, file.strings("tokenizer.ggml.tokens"));
  GALVANI_TRY(const auto types, file.integers("tokenizer.ggml.token_type"));
  static constexpr std::string_view kEnds[] = {"<|eot_id|>",    "<|im_end|>",     "<end_of_turn>", "<turn|>",
                                               "<|end|>",       "<|eom_id|>",     "<|return|>",    "<|call|>",
                                               "<|endoftext|>", "<|end_of_text|>"};
  for (size_t i = 0; i < std::min(tokens.size(), types.size()); ++i)
    if ((types[i] == 3 || types[i] == 4) && std::find(std::begin(kEnds), std::end(kEnds), tokens[i]) != std::end(kEnds))
      add(static_cast<int64_t>(i));
  return ids;
}

}  // namespace

Status add_rope_scaling(ArchReader& keys, json& rope) {
  GALVANI_TRY(std::string type, keys.file().string(keys.full("rope.scaling.type"), "none"));
  GALVANI_TRY(double factor, keys.number("rope.scaling.factor", 0, 1e6, 0.0));
  GALVANI_TRY(const double legacy, keys.number("rope.scale_linear", 0, 1e6, 0.0));
  if (type == "none" && legacy > 0) type = "linear";
  if (factor == 0) factor = legacy;
  if (type == "none" || (type == "linear" && (factor == 0 || factor == 1))) {
    rope["rope_type"] = "default";
    return {};
  }
  rope["rope_type"] = type;  // longrope and others are refused by name when the rope is parsed
  rope["factor"] = factor == 0 ? 1.0 : factor;
  if (type != "yarn") return {};
  GALVANI_TRY(const double original, keys.number("rope.scaling.original_context_length", 0, 1e18, 0.0));
  if (original > 0) rope["original_max_position_embeddings"] = original;
  GALVANI_TRY(rope["beta_fast"], keys.number("rope.scaling.yarn_beta_fast", 0, 1e9, 32.0));
  GALVANI_TRY(rope["beta_slow"], keys.number("rope.scaling.yarn_beta_slow", 0, 1e9, 1.0));
  // ggml multiplies its own 1 + 0.1 ln(factor) with the file's attn_factor.
  GALVANI_TRY(const double attn, keys.number("rope.scaling.attn_factor", 0, 1e6, 1.0));
  GALVANI_TRY(const double yarn_attn, keys.number("rope.scaling.yarn_attn_factor", 0, 1e6, 1.0));
  rope["attention_factor"] = attn * yarn_attn * (1.0 + 0.1 * std::log(std::max(factor, 1.0)));
  keys.full("rope.scaling.finetuned");
  for (const char* key : {"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_log_multiplier"}) {
    GALVANI_TRY(const double value, keys.number(key, -1e6, 1e6, 0.0));
    if (value != 0 && value != 1) rope[key] = value;  // the rope parser warns about it
  }
  return {};
}

Result<GgufConfig> read_gguf_config(const GgufFile& file) {
  GgufConfig result;
  GALVANI_TRY(result.architecture, file.string("general.architecture"));
  if (!gguf_architecture_known(result.architecture))
    return fail(ErrorCode::kUnsupported, "{}: architecture {} is not supported; supported are {}", file.label(),
                quote(result.architecture), gguf_architectures());
  ArchReader keys(file, result.architecture);
  json config = json::object();
  if (result.architecture == "gemma4") keys.vary_by_layer({"attention.head_count_kv", "feed_forward_length"});
  GALVANI_TRY_VOID(add_common(keys, config));
  if (result.architecture == "gemma3") {
    GALVANI_TRY_VOID(add_gemma3(keys, config));
    result.norms_folded = true;
  } else if (result.architecture == "gemma4") {
    GALVANI_TRY_VOID(add_gemma4(keys, config));
  } else if (result.architecture == "qwen3moe") {
    GALVANI_TRY_VOID(add_qwen3moe(keys, config));
  } else if (result.architecture == "gpt-oss") {
    GALVANI_TRY_VOID(add_gpt_oss(keys, config));
  } else if (result.architecture == "qwen35" || result.architecture == "qwen35moe" ||
             result.architecture == "qwen3next") {
    const int64_t blocks = config["num_hidden_layers"].get<int64_t>();
    GALVANI_TRY_VOID(add_hybrid(keys, config, result.architecture));
    result.norms_folded = true;
    result.predicts_ahead = config["num_hidden_layers"].get<int64_t>() < blocks;
  } else {
    GALVANI_TRY_VOID(add_pre_norm(keys, config, result.architecture));
  }
  if (result.architecture == "llama") {
    if (config.contains("partial_rotary_factor"))
      return fail(ErrorCode::kUnsupported,
                  "{}: llama with a partial rotary embedding (rope.dimension_count {}) is not supported", file.label(),
                  *file.integer("llama.rope.dimension_count", 0));
    result.interleaved_head = config["head_dim"].get<int64_t>();
  }
  keys.add_unknown(config);
  GALVANI_TRY(result.hf.eos_ids, read_eos(file, config["vocab_size"].get<int64_t>()));
  config["eos_token_id"] = result.hf.eos_ids;
  result.hf.config = std::move(config);
  result.hf.generation = json::object();
  return result;
}

}  // namespace galvani::formats
