#include "formats/gguf_names.h"

#include <algorithm>
#include <span>

namespace galvani::formats {
namespace {

struct NamePair {
  std::string_view hf, gguf;
};

/// Outside the blocks; the same for every architecture here.
constexpr NamePair kOuter[] = {{"model.embed_tokens", "token_embd"},
                               {"model.norm", "output_norm"},
                               {"lm_head", "output"},
                               {"model.embed_tokens_per_layer", "per_layer_token_embd"},
                               {"model.per_layer_model_projection", "per_layer_model_proj"},
                               {"model.per_layer_projection_norm", "per_layer_proj_norm"}};

/// llama, qwen2, qwen3: pre-norm blocks.
constexpr NamePair kPreNorm[] = {{"input_layernorm", "attn_norm"},    {"self_attn.q_proj", "attn_q"},
                                 {"self_attn.k_proj", "attn_k"},      {"self_attn.v_proj", "attn_v"},
                                 {"self_attn.o_proj", "attn_output"}, {"self_attn.q_norm", "attn_q_norm"},
                                 {"self_attn.k_norm", "attn_k_norm"}, {"post_attention_layernorm", "ffn_norm"},
                                 {"mlp.gate_proj", "ffn_gate"},       {"mlp.up_proj", "ffn_up"},
                                 {"mlp.down_proj", "ffn_down"}};

/// gemma3: a norm before and after each half of the block.
constexpr NamePair kSandwich[] = {{"input_layernorm", "attn_norm"},
                                  {"self_attn.q_proj", "attn_q"},
                                  {"self_attn.k_proj", "attn_k"},
                                  {"self_attn.v_proj", "attn_v"},
                                  {"self_attn.o_proj", "attn_output"},
                                  {"self_attn.q_norm", "attn_q_norm"},
                                  {"self_attn.k_norm", "attn_k_norm"},
                                  {"post_attention_layernorm", "post_attention_norm"},
                                  {"pre_feedforward_layernorm", "ffn_norm"},
                                  {"mlp.gate_proj", "ffn_gate"},
                                  {"mlp.up_proj", "ffn_up"},
                                  {"mlp.down_proj", "ffn_down"},
                                  {"post_feedforward_layernorm", "post_ffw_norm"}};

/// gemma4: as gemma3, with experts beside the MLP, per-layer inputs and a factor on the layer's output.
constexpr NamePair kGemma4[] = {{"input_layernorm", "attn_norm"},
                                {"self_attn.q_proj", "attn_q"},
                                {"self_attn.k_proj", "attn_k"},
                                {"self_attn.v_proj", "attn_v"},
                                {"self_attn.o_proj", "attn_output"},
                                {"self_attn.q_norm", "attn_q_norm"},
                                {"self_attn.k_norm", "attn_k_norm"},
                                {"post_attention_layernorm", "post_attention_norm"},
                                {"pre_feedforward_layernorm", "ffn_norm"},
                                {"mlp.gate_proj", "ffn_gate"},
                                {"mlp.up_proj", "ffn_up"},
                                {"mlp.down_proj", "ffn_down"},
                                {"post_feedforward_layernorm", "post_ffw_norm"},
                                {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
                                {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
                                {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
                                {"router.proj", "ffn_gate_inp"},
                                {"router.scale", "ffn_gate_inp.scale"},
                                {"router.per_expert_scale", "ffn_down_exps.scale"},
                                {"experts.gate_up_proj", "ffn_gate_up_exps"},
                                {"experts.down_proj", "ffn_down_exps"},
                                {"per_layer_input_gate", "inp_gate"},
                                {"per_layer_projection", "proj"},
                                {"post_per_layer_input_norm", "post_norm"},
                                {"layer_scalar", "layer_output_scale.weight"}};

/// qwen3moe: kPreNorm's, with experts; a layer without them has the dense names.
constexpr NamePair kQwen3Moe[] = {{"input_layernorm", "attn_norm"},
                                  {"self_attn.q_proj", "attn_q"},
                                  {"self_attn.k_proj", "attn_k"},
                                  {"self_attn.v_proj", "attn_v"},
                                  {"self_attn.o_proj", "attn_output"},
                                  {"self_attn.q_norm", "attn_q_norm"},
                                  {"self_attn.k_norm", "attn_k_norm"},
                                  {"post_attention_layernorm", "ffn_norm"},
                                  {"mlp.gate_proj", "ffn_gate"},
                                  {"mlp.up_proj", "ffn_up"},
                                  {"mlp.down_proj", "ffn_down"},
                                  {"mlp.gate", "ffn_gate_inp"},
                                  {"mlp.experts.gate_proj", "ffn_gate_exps"},
                                  {"mlp.experts.up_proj", "ffn_up_exps"},
                                  {"mlp.experts.down_proj", "ffn_down_exps"}};

/// gpt-oss: the norm before the experts is called after the attention.
constexpr NamePair kGptOss[] = {{"input_layernorm", "attn_norm"},
                                {"self_attn.q_proj", "attn_q"},
                                {"self_attn.k_proj", "attn_k"},
                                {"self_attn.v_proj", "attn_v"},
                                {"self_attn.o_proj", "attn_output"},
                                {"self_attn.sinks", "attn_sinks"},
                                {"post_attention_layernorm", "post_attention_norm"},
                                {"mlp.router", "ffn_gate_inp"},
                                {"mlp.experts.gate_proj", "ffn_gate_exps"},
                                {"mlp.experts.up_proj", "ffn_up_exps"},
                                {"mlp.experts.down_proj", "ffn_down_exps"}};

/// qwen35, qwen35moe, qwen3next: gated delta nets, dense or with experts and a shared one.
constexpr NamePair kHybrid[] = {{"input_layernorm", "attn_norm"},
                                {"post_attention_layernorm", "post_attention_norm"},
                                {"self_attn.q_proj", "attn_q"},
                                {"self_attn.k_proj", "attn_k"},
                                {"self_attn.v_proj", "attn_v"},
                                {"self_attn.o_proj", "attn_output"},
                                {"self_attn.q_norm", "attn_q_norm"},
                                {"self_attn.k_norm", "attn_k_norm"},
                                {"linear_attn.in_proj_qkv", "attn_qkv"},
                                {"linear_attn.in_proj_z", "attn_gate"},
                                {"linear_attn.in_proj_b", "ssm_beta"},
                                {"linear_attn.in_proj_a", "ssm_alpha"},
                                {"linear_attn.in_proj_ba", "ssm_ba"},
                                {"linear_attn.conv1d", "ssm_conv1d"},
                                {"linear_attn.A_log", "ssm_a"},
                                {"linear_attn.dt_bias", "ssm_dt.bias"},
                                {"linear_attn.norm", "ssm_norm"},
                                {"linear_attn.out_proj", "ssm_out"},
                                {"mlp.gate_proj", "ffn_gate"},
                                {"mlp.up_proj", "ffn_up"},
                                {"mlp.down_proj", "ffn_down"},
                                {"mlp.gate", "ffn_gate_inp"},
                                {"mlp.experts.gate_up_proj", "ffn_gate_up_exps"},
                                {"mlp.experts.gate_proj", "ffn_gate_exps"},
                                {"mlp.experts.up_proj", "ffn_up_exps"},
                                {"mlp.experts.down_proj", "ffn_down_exps"},
                                {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
                                {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
                                {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
                                {"mlp.shared_expert.down_proj", "ffn_down_shexp"}};

struct Architecture {
  std::string_view name;
  std::span<const NamePair> block;
};
// One a line.
// clang-format off
constexpr Architecture kArchitectures[] = {
    {"llama", kPreNorm},
    {"qwen2", kPreNorm},
    {"qwen3", kPreNorm},
    {"qwen35", kHybrid},
    {"qwen35moe", kHybrid},
    {"qwen3moe", kQwen3Moe},
    {"qwen3next", kHybrid},
    {"gemma3", kSandwich},
    {"gemma4", kGemma4},
    {"gpt-oss", kGptOss},
};
// clang-format on

const Architecture* find_architecture(std::string_view name) {
  for (const auto& architecture : kArchitectures)
    if (architecture.name == name) return &architecture;
  return nullptr;
}

/// "x.weight" → {"x", ".weight"}; the ending may be empty.
std::pair<std::string_view, std::string_view> split_ending(std::string_view name) {
  for (std::string_view ending : {".weight", ".bias"})
    if (name.ends_with(ending)) return {name.substr(0, name.size() - ending.size()), ending};
  return {name, {}};
}

/// "PREFIX12.rest" → {"12", "rest"}.
std::optional<std::pair<std::string_view, std::string_view>> split_block(std::string_view name,
                                                                         std::string_view prefix) {
  if (!name.starts_with(prefix)) return std::nullopt;
  name.remove_prefix(prefix.size());
  const size_t dot = name.find('.');
  if (dot == 0 || dot > 9 ||
      !std::all_of(name.begin(), name.begin() + static_cast<std::ptrdiff_t>(std::min(dot, name.size())),
                   [](char c) { return c >= '0' && c <= '9'; }))
    return std::nullopt;
  if (dot == name.npos) return std::nullopt;
  return std::pair{name.substr(0, dot), name.substr(dot + 1)};
}

/// Looks `name` up in one column of the tables and answers with the other.
std::optional<std::string> translate(const Architecture& architecture, std::string_view name,
                                     std::string_view NamePair::*from, std::string_view NamePair::*to,
                                     std::string_view from_block, std::string_view to_block) {
  const auto [stem, ending] = split_ending(name);
  for (const auto& pair : kOuter)
    if (pair.*from == stem) return std::string(pair.*to) + std::string(ending);
  const auto block = split_block(stem, from_block);
  if (!block) return std::nullopt;
  const std::string whole = std::string(block->second) + std::string(ending);
  for (const auto& pair : architecture.block)  // a name that has its ending in the table is taken as it stands there
    if (!ending.empty() && pair.*from == whole)
      return std::string(to_block) + std::string(block->first) + "." + std::string(pair.*to);
  for (const auto& pair : architecture.block)
    if (pair.*from == block->second)
      return std::string(to_block) + std::string(block->first) + "." + std::string(pair.*to) + std::string(ending);
  return std::nullopt;
}

}  // namespace

std::optional<std::string> hf_name_of_gguf(std::string_view architecture, std::string_view gguf_name) {
  const auto* found = find_architecture(architecture);
  if (found == nullptr) return std::nullopt;
  return translate(*found, gguf_name, &NamePair::gguf, &NamePair::hf, "blk.", "model.layers.");
}

std::optional<std::string> gguf_name_of_hf(std::string_view architecture, std::string_view hf_name) {
  const auto* found = find_architecture(architecture);
  if (found == nullptr) return std::nullopt;
  return translate(*found, hf_name, &NamePair::hf, &NamePair::gguf, "model.layers.", "blk.");
}

std::string gguf_architectures() {
  std::string names;
  for (const auto& architecture : kArchitectures) names += (names.empty() ? "" : ", ") + std::string(architecture.name);
  return names;
}

bool gguf_architecture_known(std::string_view architecture) { return find_architecture(architecture) != nullptr; }

}  // namespace galvani::formats
