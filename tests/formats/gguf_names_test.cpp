#include "formats/gguf_names.h"

#include <gtest/gtest.h>

namespace galvani::formats {
namespace {

TEST(GgufNames, BothWays) {
  const struct {
    const char *arch, *gguf, *hf;
  } cases[] = {{"llama", "token_embd.weight", "model.embed_tokens.weight"},
               {"llama", "output.weight", "lm_head.weight"},
               {"qwen2", "output_norm.weight", "model.norm.weight"},
               {"qwen2", "blk.0.attn_q.bias", "model.layers.0.self_attn.q_proj.bias"},
               {"qwen3", "blk.35.attn_k_norm.weight", "model.layers.35.self_attn.k_norm.weight"},
               {"llama", "blk.12.ffn_norm.weight", "model.layers.12.post_attention_layernorm.weight"},
               {"gemma3", "blk.12.ffn_norm.weight", "model.layers.12.pre_feedforward_layernorm.weight"},
               {"gemma3", "blk.1.post_attention_norm.weight", "model.layers.1.post_attention_layernorm.weight"},
               {"gemma3", "blk.1.post_ffw_norm.weight", "model.layers.1.post_feedforward_layernorm.weight"},
               {"gemma4", "blk.7.layer_output_scale.weight", "model.layers.7.layer_scalar"},
               {"gemma4", "blk.7.ffn_gate_inp.scale", "model.layers.7.router.scale"},
               {"gemma4", "blk.7.ffn_gate_inp.weight", "model.layers.7.router.proj.weight"},
               {"gemma4", "blk.7.ffn_down_exps.scale", "model.layers.7.router.per_expert_scale"},
               {"gemma4", "blk.7.pre_ffw_norm_2.weight", "model.layers.7.pre_feedforward_layernorm_2.weight"},
               {"gemma4", "blk.7.proj.weight", "model.layers.7.per_layer_projection.weight"},
               {"gemma4", "per_layer_token_embd.weight", "model.embed_tokens_per_layer.weight"},
               {"qwen3moe", "blk.1.ffn_gate_inp.weight", "model.layers.1.mlp.gate.weight"},
               {"qwen3moe", "blk.1.ffn_up_exps.weight", "model.layers.1.mlp.experts.up_proj.weight"},
               {"gpt-oss", "blk.3.attn_sinks.weight", "model.layers.3.self_attn.sinks.weight"},
               {"gpt-oss", "blk.3.post_attention_norm.weight", "model.layers.3.post_attention_layernorm.weight"},
               {"gpt-oss", "blk.3.ffn_gate_inp.bias", "model.layers.3.mlp.router.bias"},
               {"gpt-oss", "blk.3.ffn_down_exps.bias", "model.layers.3.mlp.experts.down_proj.bias"}};
  for (const auto& c : cases) {
    EXPECT_EQ(hf_name_of_gguf(c.arch, c.gguf).value_or("nothing"), c.hf);
    EXPECT_EQ(gguf_name_of_hf(c.arch, c.hf).value_or("nothing"), c.gguf);
  }
}

TEST(GgufNames, UnknownNamesHaveNoTranslation) {
  for (const char* name :
       {"rope_freqs.weight", "blk.weight", "blk..attn_q.weight", "blk.x.attn_q.weight", "blk.1.weight", "blk.1", "blk.",
        "", ".weight", "blk.99999999999.attn_q.weight", "blk.1.post_ffw_norm.weight"})
    EXPECT_EQ(hf_name_of_gguf("llama", name), std::nullopt) << name;
  EXPECT_EQ(hf_name_of_gguf("mamba", "token_embd.weight"), std::nullopt);
  EXPECT_TRUE(gguf_architecture_known("gemma3"));
  EXPECT_FALSE(gguf_architecture_known("gemma"));
}

}  // namespace
}  // namespace galvani::formats
