/// What config keys mean for a forward pass when no family asked for them.
#include <algorithm>
#include <string_view>

#include "formats/config_reader.h"

namespace galvani::formats {
namespace {

using nlohmann::json;

/// Which value of a key leaves the arithmetic as it is.
enum class Neutral {
  kNever,        ///< any value but null matters
  kOne,          ///< 1, the factor that does nothing
  kZero,         ///< 0, none
  kFalse,        ///< switched off
  kTrue,         ///< switched on is what every family does anyway
  kEmpty,        ///< an empty list or object
  kAllFull,      ///< layer_types: every layer "full_attention"
  kDefaultRope,  ///< rope dictionaries of type default
  kNoWindow,     ///< matters only where use_sliding_window is true or missing
  kSlidingOff,   ///< matters only where use_sliding_window is true
  kNoExperts,    ///< matters only beside a number of experts
};

struct KeyRule {
  std::string_view key;
  Neutral neutral;
};

constexpr KeyRule kMaths[] = {
    {"activation_sparsity_pattern", Neutral::kNever},
    {"alibi", Neutral::kFalse},
    {"altup_num_inputs", Neutral::kNever},
    {"attention_bias", Neutral::kFalse},
    {"attention_chunk_size", Neutral::kNever},
    {"attention_k_eq_v", Neutral::kFalse},
    {"attention_multiplier", Neutral::kNever},
    {"attention_sink_size", Neutral::kNever},
    {"attn_logit_softcapping", Neutral::kNever},
    {"attn_output_gate", Neutral::kFalse},
    {"attn_temperature_tuning", Neutral::kFalse},
    {"clip_qkv", Neutral::kNever},
    {"cross_attention_layers", Neutral::kEmpty},
    {"decoder_sparse_step", Neutral::kNoExperts},
    {"dim_model_base", Neutral::kNever},
    {"embedding_multiplier", Neutral::kOne},
    {"enable_moe_block", Neutral::kFalse},
    {"expert_layer_period", Neutral::kNever},
    {"final_logit_softcapping", Neutral::kNever},
    {"first_k_dense_replace", Neutral::kNoExperts},
    {"full_attention_interval", Neutral::kOne},
    {"global_head_dim", Neutral::kNever},
    {"head_dim", Neutral::kNever},
    {"hidden_act", Neutral::kNever},
    {"hidden_activation", Neutral::kNever},
    {"hidden_size_per_layer_input", Neutral::kZero},
    {"interleave_moe_layer_step", Neutral::kNoExperts},
    {"kv_lora_rank", Neutral::kNever},
    {"laurel_rank", Neutral::kNever},
    {"layer_types", Neutral::kAllFull},
    {"linear_conv_kernel_dim", Neutral::kNever},
    {"linear_key_head_dim", Neutral::kNever},
    {"linear_num_key_heads", Neutral::kNever},
    {"linear_num_value_heads", Neutral::kNever},
    {"linear_value_head_dim", Neutral::kNever},
    {"lm_head_multiplier", Neutral::kOne},
    {"logit_scale", Neutral::kOne},
    {"logits_scaling", Neutral::kOne},
    {"mamba_d_state", Neutral::kNever},
    {"max_window_layers", Neutral::kSlidingOff},
    {"mlp_bias", Neutral::kFalse},
    {"mlp_only_layers", Neutral::kEmpty},
    {"moe_intermediate_size", Neutral::kNoExperts},
    {"moe_layers", Neutral::kEmpty},
    {"moe_layer_freq", Neutral::kNoExperts},
    {"moe_router_activation_func", Neutral::kNoExperts},
    {"n_group", Neutral::kNoExperts},
    {"n_routed_experts", Neutral::kZero},
    {"n_shared_experts", Neutral::kZero},
    {"no_rope_layer_interval", Neutral::kZero},
    {"no_rope_layers", Neutral::kEmpty},
    {"norm_topk_prob", Neutral::kNoExperts},
    {"num_experts", Neutral::kZero},
    {"num_experts_per_tok", Neutral::kNoExperts},
    {"num_global_key_value_heads", Neutral::kNever},
    {"num_key_value_heads", Neutral::kNever},
    {"num_kv_shared_layers", Neutral::kZero},
    {"num_local_experts", Neutral::kZero},
    {"num_shared_experts", Neutral::kZero},
    {"output_gate_type", Neutral::kNever},
    {"parallel_attn", Neutral::kFalse},
    {"partial_rotary_factor", Neutral::kOne},
    {"per_layer_config", Neutral::kEmpty},
    {"position_embedding_type", Neutral::kNever},
    {"q_lora_rank", Neutral::kNever},
    {"qk_layernorm", Neutral::kFalse},
    {"qk_norm", Neutral::kFalse},
    {"qkv_bias", Neutral::kFalse},
    {"query_pre_attn_scalar", Neutral::kNever},
    {"residual_multiplier", Neutral::kOne},
    {"rms_norm_eps", Neutral::kNever},
    {"rope_interleave", Neutral::kFalse},
    {"rope_interleaved", Neutral::kFalse},
    {"rope_local_base_freq", Neutral::kNever},
    {"rope_parameters", Neutral::kNever},
    {"rope_pct", Neutral::kOne},
    {"rope_scaling", Neutral::kDefaultRope},
    {"rope_theta", Neutral::kNever},
    {"rotary_dim", Neutral::kNever},
    {"rotary_pct", Neutral::kOne},
    {"routed_scaling_factor", Neutral::kOne},
    {"scale_depth", Neutral::kNever},
    {"scale_emb", Neutral::kOne},
    {"scoring_func", Neutral::kNoExperts},
    {"shared_expert_intermediate_size", Neutral::kNoExperts},
    {"sliding_window", Neutral::kNoWindow},
    {"sliding_window_pattern", Neutral::kNoWindow},
    {"_sliding_window_pattern", Neutral::kNoWindow},
    {"swiglu_limit", Neutral::kNever},
    {"tie_word_embeddings", Neutral::kFalse},
    {"top_k_experts", Neutral::kNoExperts},
    {"topk_group", Neutral::kNoExperts},
    {"topk_method", Neutral::kNoExperts},
    {"use_alibi", Neutral::kFalse},
    {"use_bias", Neutral::kFalse},
    {"use_bidirectional_attention", Neutral::kFalse},
    {"use_double_wide_mlp", Neutral::kFalse},
    {"use_parallel_residual", Neutral::kFalse},
    {"use_qk_norm", Neutral::kFalse},
    {"use_rope", Neutral::kTrue},
    {"use_sliding_window", Neutral::kFalse},
    {"v_head_dim", Neutral::kNever},
};

constexpr std::string_view kHarmless[] = {
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_commit_hash",
    "_from_model_config",
    "_name_or_path",
    "add_cross_attention",
    "architectures",
    "attention_dropout",
    "attention_probs_dropout_prob",
    "attn_implementation",
    "audio_token_id",
    "auto_map",
    "bad_words_ids",
    "begin_suppress_tokens",
    "boi_token_index",
    "bos_token_id",
    "cache_implementation",
    "chunk_size_feed_forward",
    "classifier_dropout",
    "decoder_start_token_id",
    "do_sample",
    "dtype",
    "embd_pdrop",
    "embedding_dropout",
    "eoi_token_index",
    "eos_token_id",
    "finetuning_task",
    "forced_eos_token_id",
    "hidden_dropout_prob",
    "id2label",
    "image_token_id",
    "image_token_index",
    "initializer_factor",
    "initializer_range",
    "is_decoder",
    "is_encoder_decoder",
    "is_llama_config",
    "keys_to_ignore_at_inference",
    "label2id",
    "language_model_only",
    "max_length",
    "max_position_embeddings",
    "mamba_ssm_dtype",
    "model_type",
    "mrope_interleaved",
    "mtp_num_hidden_layers",
    "mtp_use_dedicated_embeddings",
    "num_beams",
    "num_labels",
    "num_nextn_predict_layers",
    "original_max_position_embeddings",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
    "pad_token_id",
    "prefix",
    "pretraining_tp",
    "problem_type",
    "quantization",
    "quantization_config",
    "resid_pdrop",
    "return_dict",
    "router_aux_loss_coef",
    "router_jitter_noise",
    "router_z_loss_coef",
    "sep_token_id",
    "suppress_tokens",
    "task_specific_params",
    "temperature",
    "tokenizer_class",
    "top_k",
    "top_p",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "unsloth_fixed",
    "unsloth_version",
    "use_cache",
    "use_cache_quantization",
    "use_flash_attn",
    "use_mrope",
    "video_token_id",
    "vision_end_token_id",
    "vision_start_token_id",
    "vision_token_id",
    "transformers.js_config",
};

bool is_number(const json& value, double expected) { return value.is_number() && value.get<double>() == expected; }

bool has_experts(const json& config) {
  for (const char* key : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    const auto it = config.find(key);
    if (it != config.end() && it->is_number() && it->get<double>() != 0) return true;
  }
  return false;
}

bool default_rope(const json& value) {
  if (!value.is_object()) return false;
  for (const char* key : {"rope_type", "type"}) {
    const auto it = value.find(key);
    if (it != value.end()) return it->is_string() && it->get_ref<const std::string&>() == "default";
  }
  return value.empty();
}

bool neutral(Neutral rule, const json& value, const json& config) {
  if (value.is_null()) return true;
  switch (rule) {
    case Neutral::kNever: return false;
    case Neutral::kOne: return is_number(value, 1.0);
    case Neutral::kZero: return is_number(value, 0.0);
    case Neutral::kFalse: return value.is_boolean() && !value.get<bool>();
    case Neutral::kTrue: return value.is_boolean() && value.get<bool>();
    case Neutral::kEmpty: return (value.is_array() || value.is_object()) && value.empty();
    case Neutral::kAllFull:
      return value.is_array() && std::all_of(value.begin(), value.end(), [](const json& item) {
               return item.is_string() && item.get_ref<const std::string&>() == "full_attention";
             });
    case Neutral::kDefaultRope: return default_rope(value);
    case Neutral::kNoWindow: {
      const auto it = config.find("use_sliding_window");
      return it != config.end() && it->is_boolean() && !it->get<bool>();
    }
    case Neutral::kSlidingOff: {
      const auto it = config.find("use_sliding_window");
      return it == config.end() || !it->is_boolean() || !it->get<bool>();
    }
    case Neutral::kNoExperts: return !has_experts(config);
  }
  return false;
}

}  // namespace

KeyEffect key_effect(const std::string& key, const json& value, const json& config) {
  for (const auto& rule : kMaths)
    if (rule.key == key) return neutral(rule.neutral, value, config) ? KeyEffect::kNeutral : KeyEffect::kMatters;
  if (std::find(std::begin(kHarmless), std::end(kHarmless), key) != std::end(kHarmless)) return KeyEffect::kHarmless;
  return KeyEffect::kUnknown;
}

}  // namespace galvani::formats
