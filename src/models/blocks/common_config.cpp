#include "models/blocks/common_config.h"

#include "core/error.h"

namespace galvani::models {

Result<CommonConfig> read_common(formats::ConfigReader& config, const CommonDefaults& defaults) {
  CommonConfig common;
  GALVANI_TRY(common.hidden, config.dimension("hidden_size", defaults.hidden));
  GALVANI_TRY(common.inner, config.dimension("intermediate_size", defaults.inner));
  GALVANI_TRY(common.vocab, config.vocabulary("vocab_size", defaults.vocab));
  GALVANI_TRY(common.context, config.integer("max_position_embeddings", 1, (int64_t{1} << 31) - 1, defaults.context));
  GALVANI_TRY(const int64_t layers, config.integer("num_hidden_layers", 1, 4096, defaults.layers));
  GALVANI_TRY(const int64_t heads, config.integer("num_attention_heads", 1, 4096, defaults.heads));
  GALVANI_TRY(const int64_t kv_heads,
              config.integer("num_key_value_heads", 1, 4096, defaults.kv_heads.value_or(heads)));
  if (!config.has("head_dim") && !defaults.head_dim && common.hidden % heads != 0)
    return fail(ErrorCode::kCorrupt,
                "{}: hidden_size {} is not a multiple of num_attention_heads {} and there is no head_dim",
                config.label(), common.hidden, heads);
  GALVANI_TRY(const int64_t head_dim,
              config.integer("head_dim", 2, 4096, defaults.head_dim.value_or(common.hidden / heads)));
  if (heads % kv_heads != 0)
    return fail(ErrorCode::kCorrupt, "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}",
                config.label(), heads, kv_heads);
  if (head_dim % 2 != 0)
    return fail(ErrorCode::kCorrupt, "{}: head_dim {} is odd; rotary embedding needs pairs", config.label(), head_dim);
  common.layers = static_cast<int>(layers);
  common.heads = static_cast<int>(heads);
  common.kv_heads = static_cast<int>(kv_heads);
  common.head_dim = static_cast<int>(head_dim);
  GALVANI_TRY(const double eps, config.number("rms_norm_eps", 0.0, 1.0, defaults.eps));
  common.eps = static_cast<float>(eps);
  GALVANI_TRY(common.tied, config.boolean("tie_word_embeddings", defaults.tied));
  return common;
}

AttentionSpec attention_spec(const CommonConfig& config, exec::RopeRef rope) {
  return {.heads = config.heads,
          .kv_heads = config.kv_heads,
          .head_dim = config.head_dim,
          .hidden = config.hidden,
          .eps = config.eps,
          .rope = rope};
}

ModelInfo model_info(const std::string& family, const CommonConfig& config, const quant::Checkpoint& checkpoint) {
  return {.family = family,
          .layers = config.layers,
          .hidden = config.hidden,
          .vocab = config.vocab,
          .context = config.context,
          .eos_ids = checkpoint.eos_ids()};
}

EndsSpec ends_spec(const CommonConfig& config) {
  return {.vocab = config.vocab, .hidden = config.hidden, .tied = config.tied, .eps = config.eps};
}

Result<exec::Activation> read_activation(formats::ConfigReader& config, const std::string& key,
                                         const std::string& fallback) {
  GALVANI_TRY(const std::string name, config.string(key, fallback));
  if (name == "silu" || name == "swish") return exec::Activation::kSilu;
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return exec::Activation::kGeluTanh;
  return fail(ErrorCode::kUnsupported, "{}: {} is '{}'; supported: silu, gelu_pytorch_tanh", config.label(), key, name);
}

Result<exec::RopeRef> load_rope(Loader& loader, const formats::RopeParams& params, int64_t head_dim,
                                bool file_factors) {
  exec::RopeSpec spec;
  GALVANI_TRY(spec.inv_freq, formats::rope_inv_freq(params, head_dim));
  spec.attention_scale = static_cast<float>(formats::rope_attention_scale(params));
  if (file_factors && loader.checkpoint().has("rope_freqs.weight")) {
    GALVANI_TRY(const std::vector<float> factors,
                loader.checkpoint().vector("rope_freqs.weight", static_cast<int64_t>(spec.inv_freq.size())));
    GALVANI_TRY_VOID(formats::apply_rope_factors(spec.inv_freq, factors));
  }
  return loader.ops().load_rope(spec);
}

}  // namespace galvani::models
