// qwen35, qwen35moe and qwen3next: gated delta nets (models.md 7.2 to 7.4).
#include "core/error.h"
#include "formats/gguf_arch_reader.h"

namespace galvani::formats {
namespace {

using nlohmann::json;

Status add_delta_net(ArchReader& keys, json& config) {
  GALVANI_TRY(config["linear_conv_kernel_dim"], keys.integer("ssm.conv_kernel", 1, kLargest));
  GALVANI_TRY(config["linear_key_head_dim"], keys.integer("ssm.state_size", 1, kLargest));
  GALVANI_TRY(config["linear_num_key_heads"], keys.integer("ssm.group_count", 1, kLargest));
  GALVANI_TRY(const int64_t heads, keys.integer("ssm.time_step_rank", 1, kLargest));
  GALVANI_TRY(const int64_t inner, keys.integer("ssm.inner_size", 1, kLargest));
  if (inner % heads != 0)
    return fail(ErrorCode::kCorrupt, "{}: {} is {}, not a multiple of {} ({})", keys.file().label(),
                quote(keys.full("ssm.inner_size")), inner, quote(keys.full("ssm.time_step_rank")), heads);
  config["linear_num_value_heads"] = heads;
  config["linear_value_head_dim"] = inner / heads;
  GALVANI_TRY(config["full_attention_interval"], keys.integer("full_attention_interval", 1, kMostLayers, 4));
  return {};
}

Status add_experts(ArchReader& keys, json& config) {
  GALVANI_TRY(const int64_t experts, keys.integer("expert_count", 1, kLargest));
  config["num_experts"] = experts;
  GALVANI_TRY(config["num_experts_per_tok"], keys.integer("expert_used_count", 1, experts));
  GALVANI_TRY(config["moe_intermediate_size"], keys.integer("expert_feed_forward_length", 1, kLargest));
  GALVANI_TRY(config["shared_expert_intermediate_size"], keys.integer("expert_shared_feed_forward_length", 1, kLargest,
                                                                      config["moe_intermediate_size"].get<int64_t>()));
  // All of these families renormalise, so that files rarely say; another scale or another gate would be another model.
  GALVANI_TRY(config["norm_topk_prob"], keys.file().boolean(keys.full("expert_weights_norm"), true));
  GALVANI_TRY(const double scale, keys.number("expert_weights_scale", 0, 1e6, 1.0));
  if (scale != 0 && scale != 1) config["routed_scaling_factor"] = scale;
  GALVANI_TRY(const int64_t gate, keys.integer("expert_gating_func", 0, 255, 1));
  if (gate > 1) config["scoring_func"] = gate;
  return {};
}

}  // namespace

Status add_hybrid(ArchReader& keys, json& config, const std::string& architecture) {
  const bool next = architecture == "qwen3next", experts = architecture != "qwen35";
  config["model_type"] = next ? "qwen3_next" : experts ? "qwen3_5_moe_text" : "qwen3_5_text";
  config["hidden_act"] = "silu";
  config["attention_bias"] = keys.file().find("blk.0.attn_q.bias") != nullptr;
  json rope = json::object();
  GALVANI_TRY(rope["rope_theta"], keys.number("rope.freq_base", 1, 1e18, 10000.0));
  GALVANI_TRY_VOID(add_rope_scaling(keys, rope));
  if (config.contains("partial_rotary_factor")) rope["partial_rotary_factor"] = config["partial_rotary_factor"];
  config["rope_parameters"] = rope;
  keys.full("rope.dimension_sections");  // text has one position in all of them
  GALVANI_TRY_VOID(add_delta_net(keys, config));
  // The converter puts the value heads of qwen35 in another order where there are more of them than key heads.
  config["linear_value_heads_tiled"] = !next;
  // Blocks that predict further tokens are counted as layers; they are not run.
  GALVANI_TRY(const int64_t ahead, keys.integer("nextn_predict_layers", 0, kMostLayers, 0));
  const int64_t layers = config["num_hidden_layers"].get<int64_t>();
  if (ahead >= layers)
    return fail(ErrorCode::kCorrupt, "{}: {} of {} blocks predict ahead; nothing is left to run", keys.file().label(),
                ahead, layers);
  config["num_hidden_layers"] = layers - ahead;
  return experts ? add_experts(keys, config) : Status{};
}

}  // namespace galvani::formats
