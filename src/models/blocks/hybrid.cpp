#include "models/blocks/hybrid.h"

#include "core/error.h"

namespace galvani::models {
namespace {

/// Which layers are full attention.
Result<std::vector<bool>> full_layers(formats::ConfigReader& config, int layers) {
  GALVANI_TRY(const int64_t interval, config.integer("full_attention_interval", 1, 4096, 4));
  GALVANI_TRY(const std::vector<std::string> types, config.strings("layer_types"));
  std::vector<bool> full;
  if (types.empty()) {
    for (int i = 0; i < layers; ++i) full.push_back((i + 1) % interval == 0);
    return full;
  }
  if (static_cast<int>(types.size()) != layers)
    return fail(ErrorCode::kCorrupt, "{}: layer_types has {} entries, num_hidden_layers says {}", config.label(),
                types.size(), layers);
  for (size_t i = 0; i < types.size(); ++i) {
    if (types[i] != "full_attention" && types[i] != "linear_attention")
      return fail(ErrorCode::kUnsupported,
                  "{}: layer_types[{}] is '{}'; this family has linear_attention and full_attention", config.label(), i,
                  types[i]);
    full.push_back(types[i] == "full_attention");
  }
  return full;
}

/// output_gate_type is about the delta net's gate alone; full attention's is a sigmoid always.
Result<bool> sigmoid_gate(formats::ConfigReader& config) {
  GALVANI_TRY(const std::string type, config.string("output_gate_type", "silu"));
  if (type == "silu" || type == "swish") return false;
  if (type == "sigmoid") return true;
  return fail(ErrorCode::kUnsupported, "{}: output_gate_type is '{}'; supported: silu, swish, sigmoid", config.label(),
              type);
}

Result<GatedDeltaSpec> delta_spec(formats::ConfigReader& config, const CommonConfig& common) {
  GatedDeltaSpec spec{.hidden = common.hidden, .eps = common.eps};
  GALVANI_TRY(const int64_t key_heads, config.integer("linear_num_key_heads", 1, 4096, 16));
  GALVANI_TRY(const int64_t value_heads, config.integer("linear_num_value_heads", 1, 4096, 32));
  GALVANI_TRY(const int64_t k_dim, config.integer("linear_key_head_dim", 1, 4096, 128));
  GALVANI_TRY(const int64_t v_dim, config.integer("linear_value_head_dim", 1, 4096, 128));
  GALVANI_TRY(const int64_t kernel, config.integer("linear_conv_kernel_dim", 2, 16, 4));
  GALVANI_TRY(spec.tiled_heads, config.boolean("linear_value_heads_tiled", false));
  GALVANI_TRY(spec.sigmoid_gate, sigmoid_gate(config));
  if (value_heads % key_heads != 0)
    return fail(ErrorCode::kCorrupt, "{}: linear_num_value_heads {} is not a multiple of linear_num_key_heads {}",
                config.label(), value_heads, key_heads);
  spec.key_heads = static_cast<int>(key_heads);
  spec.value_heads = static_cast<int>(value_heads);
  spec.k_dim = static_cast<int>(k_dim);
  spec.v_dim = static_cast<int>(v_dim);
  spec.kernel = static_cast<int>(kernel);
  return spec;
}

}  // namespace

Result<DecoderSpec> read_hybrid(formats::ConfigReader& config, const std::string& family, const CommonConfig& common,
                                Loader& loader) {
  GALVANI_TRY(const std::vector<bool> full, full_layers(config, common.layers));
  GALVANI_TRY(const GatedDeltaSpec delta, delta_spec(config, common));
  GALVANI_TRY(const bool attention_bias, config.boolean("attention_bias", false));
  GALVANI_TRY(const bool output_gate, config.boolean("attn_output_gate", true));
  GALVANI_TRY(const formats::RopeParams rope,
              formats::parse_rope(config, "full_attention", {.theta = 1e7, .partial_rotary_factor = 0.25}));
  GALVANI_TRY(const exec::RopeRef rope_ref, load_rope(loader, rope, common.head_dim));
  DecoderSpec spec{.info = model_info(family, common, loader.checkpoint()),
                   .ends = ends_spec(common),
                   .eps = common.eps,
                   .norm_zero_centred = true};
  spec.ends.norm_zero_centred = true;
  AttentionSpec attention = attention_spec(common, rope_ref);
  attention.qkv_bias = attention.out_bias = attention_bias;
  attention.qk_norm = attention.qk_norm_zero_centred = true;
  attention.output_gate = output_gate;
  for (const bool is_full : full) {
    DecoderLayerSpec layer{.attention = attention};
    if (!is_full) layer.delta = delta;
    spec.layers.push_back(layer);
  }
  return spec;
}

Status add_experts(formats::ConfigReader& config, const CommonConfig& common, exec::Activation activation,
                   DecoderSpec& spec) {
  MoeSpec moe{.activation = activation, .shared = "mlp.shared_expert", .shared_gate = "mlp.shared_expert_gate"};
  moe.experts = {.prefix = "mlp", .hidden = common.hidden};
  GALVANI_TRY(moe.experts.count, read_expert_count(config));
  GALVANI_TRY(moe.experts.active, read_active_experts(config, moe.experts.count, 10));
  GALVANI_TRY(moe.experts.inner, config.dimension("moe_intermediate_size", 512));
  GALVANI_TRY(moe.shared_inner, config.dimension("shared_expert_intermediate_size", 512));
  GALVANI_TRY(moe.routing.renormalize, config.boolean("norm_topk_prob", true));
  GALVANI_TRY(const std::vector<bool> sparse, expert_layers(config, common.layers, moe.experts.count));
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    spec.layers[i].inner = common.inner;
    spec.layers[i].activation = activation;
    if (sparse[i]) spec.layers[i].moe = moe;
  }
  return {};
}

Result<std::unique_ptr<Model>> load_hybrid_moe(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress,
                                               const std::string& family, int64_t dense_width) {
  formats::ConfigReader config(checkpoint.config(), checkpoint.path().string());
  GALVANI_TRY(const CommonConfig common, read_common(config, {.eps = 1e-6, .inner = dense_width}));
  GALVANI_TRY(const exec::Activation activation, read_activation(config, "hidden_act", "silu"));
  Loader loader(checkpoint, ops, common.layers, progress);
  GALVANI_TRY(DecoderSpec spec, read_hybrid(config, family, common, loader));
  GALVANI_TRY_VOID(add_experts(config, common, activation, spec));
  GALVANI_TRY_VOID(config.finish());
  return load_decoder(std::move(spec), loader);
}

}  // namespace galvani::models
