#pragma once
/// What qwen3_next, qwen3_5 and qwen3_5_moe share: gated delta nets with a gated full attention every few layers
/// (models.md 3.5, 3.6).
#include "models/blocks/common_config.h"
#include "models/blocks/decoder.h"

namespace galvani::models {

/// The mixers of every layer, from layer_types or full_attention_interval, linear_*, attn_output_gate, output_gate_type
/// and the rope keys. `layers` of the result have their MLPs still to be filled in; info, ends and norms are set.
Result<DecoderSpec> read_hybrid(formats::ConfigReader& config, const std::string& family, const CommonConfig& common,
                                Loader& loader);

/// Experts with renormalised softmax routing and a gated shared expert in every layer that has experts; the others get
/// a dense MLP of common.inner. Reads num_experts, num_experts_per_tok, moe_intermediate_size,
/// shared_expert_intermediate_size, norm_topk_prob, decoder_sparse_step, mlp_only_layers.
Status add_experts(formats::ConfigReader& config, const CommonConfig& common, exec::Activation activation,
                   DecoderSpec& spec);

/// A whole model of such layers with experts. `dense_width`: intermediate_size where the config does not say it.
Result<std::unique_ptr<Model>> load_hybrid_moe(quant::Checkpoint& checkpoint, exec::Ops& ops, const Progress& progress,
                                               const std::string& family, int64_t dense_width);

}  // namespace galvani::models
