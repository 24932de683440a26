// gpt-oss (models.md 3.9): attention sinks, biases everywhere, every other layer sliding, yarn without rounding of its
// ramp, experts of clamped SwiGLU chosen by the top logits.
#include "core/error.h"
#include "models/blocks/common_config.h"
#include "models/blocks/decoder.h"
#include "models/blocks/layer_types.h"
#include "models/families.h"

namespace galvani::models {
namespace {

/// Experts of layers "mlp": fused with interleaved rows; in bf16 files stored by columns.
Result<MoeSpec> read_moe(formats::ConfigReader& config, const CommonConfig& common) {
  MoeSpec moe{.router = "mlp.router", .router_bias = true};
  moe.experts = {.prefix = "mlp",
                 .hidden = common.hidden,
                 .inner = common.inner,
                 .interleaved = true,
                 .input_major = true,
                 .bias = true};
  moe.routing.score = kernels::RouteScore::kSoftmaxTopK;
  GALVANI_TRY(const std::string activation, config.string("hidden_act", "silu"));
  if (activation != "silu")
    return fail(ErrorCode::kUnsupported, "{}: hidden_act is '{}'; gpt_oss has silu, clamped", config.label(),
                activation);
  moe.activation.kind = exec::Activation::kSwigluClamped;
  GALVANI_TRY(const double alpha, config.number("swiglu_alpha", 0.0, 1e6, 1.702));
  GALVANI_TRY(const double limit, config.number("swiglu_limit", 1e-6, 1e30, 7.0));
  moe.activation.alpha = static_cast<float>(alpha);
  moe.activation.limit = static_cast<float>(limit);
  GALVANI_TRY(moe.experts.count, read_expert_count(config));
  GALVANI_TRY(const int other_name, read_active_experts(config, moe.experts.count, 4, "experts_per_token"));
  GALVANI_TRY(moe.experts.active, read_active_experts(config, moe.experts.count, other_name));
  config.mark_read("initial_context_length");  // yarn's original length again
  return moe;
}

}  // namespace

Result<std::unique_ptr<Model>> load_gpt_oss(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress) {
  formats::ConfigReader config(checkpoint.config(), checkpoint.path().string());
  GALVANI_TRY(const CommonConfig common, read_common(config, {.eps = 1e-5}));
  GALVANI_TRY(const bool bias, config.boolean("attention_bias", true));
  GALVANI_TRY(const std::vector<int> windows, layer_windows(config, common.layers, {.default_pattern = 2}));
  // Left out, its own default would be yarn with five numbers of its own; every published config states them.
  if (!config.has("rope_scaling") && !config.has("rope_parameters"))
    return fail(ErrorCode::kCorrupt, "{}: neither rope_scaling nor rope_parameters; gpt_oss needs its yarn parameters",
                config.label());
  GALVANI_TRY(const formats::RopeParams rope, formats::parse_rope(config, "full_attention", {.theta = 150000.0}));
  GALVANI_TRY(const MoeSpec moe, read_moe(config, common));
  GALVANI_TRY_VOID(config.finish());

  Loader loader(checkpoint, ops, common.layers, progress);
  GALVANI_TRY(const exec::RopeRef rope_ref, load_rope(loader, rope, common.head_dim));
  DecoderSpec spec{.info = model_info("gpt_oss", common, checkpoint), .ends = ends_spec(common), .eps = common.eps};
  AttentionSpec attention = attention_spec(common, rope_ref);
  attention.qkv_bias = attention.out_bias = bias;
  attention.sinks = true;
  for (const int window : windows) {
    attention.window = window;
    spec.layers.push_back({.attention = attention, .moe = moe});
  }
  return load_decoder(std::move(spec), loader);
}

}  // namespace galvani::models
