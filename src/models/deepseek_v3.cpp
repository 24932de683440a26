// DeepSeek V3 (models.md 3.11): latent attention, sigmoid routing limited to the best groups of experts, shared
// experts, yarn whose factor also enters the scale of the scores.
#include <fmt/format.h>

#include <cmath>

#include "core/error.h"
#include "core/log.h"
#include "models/blocks/common_config.h"
#include "models/blocks/decoder.h"
#include "models/families.h"

namespace galvani::models {
namespace {

struct DeepseekConfig {
  CommonConfig common;
  exec::Activation activation = exec::Activation::kSilu;
  LatentAttentionSpec attention;
  MoeSpec moe;
  int dense_layers = 0;  ///< the first ones
  int mtp_layers = 0;    ///< stored after the last one
  exec::RopeSpec rope;
};

/// As read_common, without the head widths, which latent attention has keys of its own for.
Status read_sizes(formats::ConfigReader& config, CommonConfig& common) {
  GALVANI_TRY(common.hidden, config.dimension("hidden_size"));
  GALVANI_TRY(common.inner, config.dimension("intermediate_size"));
  GALVANI_TRY(common.vocab, config.vocabulary("vocab_size"));
  GALVANI_TRY(common.context, config.integer("max_position_embeddings", 1, (int64_t{1} << 31) - 1, 2048));
  GALVANI_TRY(const int64_t layers, config.integer("num_hidden_layers", 1, 4096));
  GALVANI_TRY(const int64_t heads, config.integer("num_attention_heads", 1, 4096));
  GALVANI_TRY(const int64_t kv_heads, config.integer("num_key_value_heads", 1, 4096, heads));
  if (kv_heads != heads)
    return fail(ErrorCode::kUnsupported,
                "{}: num_key_value_heads is {}, num_attention_heads {}; latent attention gives every head a key of its "
                "own, so they must be equal",
                config.label(), kv_heads, heads);
  common.layers = static_cast<int>(layers);
  common.heads = common.kv_heads = static_cast<int>(heads);
  GALVANI_TRY(const double eps, config.number("rms_norm_eps", 0.0, 1.0, 1e-6));
  common.eps = static_cast<float>(eps);
  GALVANI_TRY(common.tied, config.boolean("tie_word_embeddings", false));
  return {};
}

Status read_attention(formats::ConfigReader& config, DeepseekConfig& out) {
  LatentAttentionSpec& spec = out.attention;
  spec.heads = out.common.heads;
  spec.hidden = out.common.hidden;
  constexpr int64_t kWidest = 1 << 16;
  GALVANI_TRY(spec.q_lora, config.integer("q_lora_rank", 1, kWidest, 0));
  GALVANI_TRY(spec.latent, config.integer("kv_lora_rank", 1, kWidest));
  GALVANI_TRY(spec.nope, config.integer("qk_nope_head_dim", 1, 4096));
  GALVANI_TRY(spec.rope_dim, config.integer("qk_rope_head_dim", 2, 4096));
  GALVANI_TRY(spec.v_dim, config.integer("v_head_dim", 1, 4096));
  GALVANI_TRY(spec.bias, config.boolean("attention_bias", false));
  if (spec.rope_dim % 2 != 0)
    return fail(ErrorCode::kCorrupt, "{}: qk_rope_head_dim is {}; rotary embedding turns pairs, so it must be even",
                config.label(), spec.rope_dim);
  config.mark_read("head_dim");     // transformers stores qk_rope_head_dim under this name
  config.mark_read("qk_head_dim");  // nope + rope

  GALVANI_TRY(const formats::RopeParams rope, formats::parse_rope(config, "full_attention", {.theta = 10000.0}));
  GALVANI_TRY(out.rope.inv_freq, formats::rope_inv_freq(rope, spec.rope_dim));
  out.rope.attention_scale = static_cast<float>(formats::rope_attention_scale(rope));
  GALVANI_TRY(out.rope.interleaved, config.boolean("rope_interleave", true));
  double scale = 1 / std::sqrt(static_cast<double>(spec.nope + spec.rope_dim));
  if (rope.type == formats::RopeType::kYarn && rope.mscale_all_dim != 0 && rope.factor > 1) {
    const double m = 0.1 * rope.mscale_all_dim * std::log(rope.factor) + 1;
    scale *= m * m;
  }
  spec.scale = static_cast<float>(scale);
  return {};
}

/// A key that names a method, of which there is one.
Status only(formats::ConfigReader& config, const std::string& key, const std::string& allowed) {
  GALVANI_TRY(const std::string found, config.string(key, allowed));
  if (found == allowed) return {};
  return fail(ErrorCode::kUnsupported, "{}: {} is '{}'; supported for deepseek_v3: {}", config.label(), key, found,
              allowed);
}

Status read_experts(formats::ConfigReader& config, DeepseekConfig& out) {
  MoeSpec& moe = out.moe;
  GALVANI_TRY_VOID(only(config, "topk_method", "noaux_tc"));
  GALVANI_TRY_VOID(only(config, "scoring_func", "sigmoid"));
  GALVANI_TRY(const int64_t every, config.integer("moe_layer_freq", 1, 4096, 1));
  if (every != 1)
    return fail(ErrorCode::kUnsupported,
                "{}: moe_layer_freq is {}; supported: 1, experts in every layer from "
                "first_k_dense_replace on",
                config.label(), every);
  GALVANI_TRY(const int64_t dense, config.integer("first_k_dense_replace", 0, 4096));
  GALVANI_TRY(const int64_t experts, config.integer("n_routed_experts", 1, 65536));
  GALVANI_TRY(const int active, read_active_experts(config, static_cast<int>(experts), std::nullopt));
  GALVANI_TRY(const int64_t groups, config.integer("n_group", 1, 65536));
  GALVANI_TRY(const int64_t kept, config.integer("topk_group", 1, 65536));
  GALVANI_TRY(const int64_t shared, config.integer("n_shared_experts", 0, 4096, 0));
  GALVANI_TRY(const int64_t inner, config.dimension("moe_intermediate_size"));
  GALVANI_TRY(const bool renormalize, config.boolean("norm_topk_prob", true));
  GALVANI_TRY(const double scaling, config.number("routed_scaling_factor", 0, 1e6));
  GALVANI_TRY(const int64_t mtp, config.integer("num_nextn_predict_layers", 0, 64, 0));
  if (experts % groups != 0 || kept > groups)
    return fail(ErrorCode::kCorrupt,
                "{}: n_group is {}, topk_group {}, n_routed_experts {}; groups must divide the experts, and no more of "
                "them can be kept than there are",
                config.label(), groups, kept, experts);
  if (active > kept * (experts / groups))
    return fail(
        ErrorCode::kCorrupt,
        "{}: num_experts_per_tok is {}, but topk_group {} of n_group {} groups of {} experts leave {} to choose "
        "from; allowed: 1 to {}",
        config.label(), active, kept, groups, experts / groups, kept * (experts / groups), kept * (experts / groups));
  out.dense_layers = static_cast<int>(std::min<int64_t>(dense, out.common.layers));
  out.mtp_layers = static_cast<int>(mtp);
  moe.experts = {.prefix = "mlp",
                 .count = static_cast<int>(experts),
                 .active = active,
                 .hidden = out.common.hidden,
                 .inner = inner};
  moe.routing.score = kernels::RouteScore::kSigmoid;
  moe.routing.renormalize = renormalize;
  moe.routing.scaling = static_cast<float>(scaling);
  moe.routing.groups = static_cast<int>(groups);
  moe.routing.groups_kept = static_cast<int>(kept);
  moe.routing.group_top2 = groups > 1;
  moe.selection_bias = "mlp.gate.e_score_correction_bias";
  moe.activation = out.activation;
  if (shared > 0) {
    moe.shared = "mlp.shared_experts";
    moe.shared_inner = shared * inner;
  }
  return {};
}

Result<DeepseekConfig> read_config(formats::ConfigReader& config) {
  DeepseekConfig out;
  GALVANI_TRY_VOID(read_sizes(config, out.common));
  GALVANI_TRY(out.activation, read_activation(config, "hidden_act", "silu"));
  GALVANI_TRY_VOID(read_attention(config, out));
  GALVANI_TRY_VOID(read_experts(config, out));
  // Of training and of how the publisher ran it.
  for (const char* key : {"aux_loss_alpha", "seq_aux", "ep_size"}) config.mark_read(key);
  GALVANI_TRY_VOID(config.finish());
  return out;
}

}  // namespace

Result<std::unique_ptr<Model>> load_deepseek_v3(quant::Checkpoint& checkpoint, exec::Ops& ops,
                                                const Progress& progress) {
  formats::ConfigReader reader(checkpoint.config(), checkpoint.path().string());
  GALVANI_TRY(DeepseekConfig config, read_config(reader));
  const CommonConfig& common = config.common;
  Loader loader(checkpoint, ops, common.layers, progress);
  GALVANI_TRY(config.attention.rope, ops.load_rope(config.rope));
  // Layers that predict further tokens stand behind the last one; they are not run.
  if (config.mtp_layers > 0)
    log_info("{}: {} layers that predict further tokens (MTP) are not run", checkpoint.path().string(),
             config.mtp_layers);
  for (int i = 0; i < config.mtp_layers; ++i)
    checkpoint.ignore_prefix(fmt::format("model.layers.{}.", common.layers + i));

  DecoderSpec spec{.info = model_info("deepseek_v3", common, checkpoint), .ends = ends_spec(common), .eps = common.eps};
  for (int i = 0; i < common.layers; ++i) {
    DecoderLayerSpec layer{.latent = config.attention, .inner = common.inner, .activation = config.activation};
    if (i >= config.dense_layers) layer.moe = config.moe;
    spec.layers.push_back(std::move(layer));
  }
  return load_decoder(std::move(spec), loader);
}

}  // namespace galvani::models
