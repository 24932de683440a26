#!/usr/bin/env python3
"""Random checkpoints of realistic shape for family_bench: MLX layout, affine 4 bits in groups of 64.

  make_family_models.py OUT [FAMILY...]     (OUT is a cache folder; a family that is there already is left alone)

Needs the Python packages mlx, mlx-lm and numpy. Every layer has the widths of a published model of the family, or half
of them where one layer alone would be too large; there are only so many layers that the file has 150 to 450 MB, and the
vocabulary is 32768. mlx-lm writes the files, so that they are laid out as it lays out real ones. Weights are random:
speed does not depend on them, except that random routers choose experts evenly.
"""
import argparse
import pathlib
import shutil

import mlx.core as mx
import mlx.utils
import numpy as np
from mlx_lm import utils

GROUP = 64
BASE = {"vocab_size": 32768, "max_position_embeddings": 4096, "rms_norm_eps": 1e-6, "rope_theta": 10000.0,
        "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "hidden_act": "silu",
        "attention_bias": False}
MOE = {"norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
DELTA = {"linear_num_key_heads": 16, "linear_num_value_heads": 16, "linear_key_head_dim": 128,
         "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "full_attention_interval": 4,
         "partial_rotary_factor": 0.25}
YARN = {"type": "yarn", "factor": 40.0, "original_max_position_embeddings": 4096, "beta_fast": 32, "beta_slow": 1,
        "mscale": 1.0, "mscale_all_dim": 1.0}

FAMILIES = {
    # Llama 3.2 1B
    "llama": dict(hidden_size=2048, intermediate_size=8192, num_hidden_layers=6, num_attention_heads=32,
                  num_key_value_heads=8, head_dim=64, mlp_bias=False),
    # Qwen2.5 1.5B
    "qwen2": dict(hidden_size=1536, intermediate_size=8960, num_hidden_layers=9, num_attention_heads=12,
                  num_key_value_heads=2, use_sliding_window=False),
    # Qwen3 1.7B
    "qwen3": dict(hidden_size=2048, intermediate_size=6144, num_hidden_layers=8, num_attention_heads=16,
                  num_key_value_heads=8, head_dim=128, use_sliding_window=False),
    # Gemma 3 1B
    "gemma3_text": dict(hidden_size=1152, intermediate_size=6912, num_hidden_layers=14, num_attention_heads=4,
                        num_key_value_heads=1, head_dim=256, query_pre_attn_scalar=256, sliding_window=512,
                        sliding_window_pattern=6, rope_local_base_freq=10000.0,
                        rope_theta=1e6, tie_word_embeddings=True, hidden_activation="gelu_pytorch_tanh"),
    # Qwen3 30B-A3B with half of the experts
    "qwen3_moe": dict(MOE, hidden_size=2048, intermediate_size=6144, moe_intermediate_size=768, num_experts=64,
                      num_experts_per_tok=8, num_hidden_layers=2, num_attention_heads=32, num_key_value_heads=4,
                      head_dim=128),
    # Mixtral 8x7B, half as wide and deep
    "mixtral": dict(hidden_size=2048, intermediate_size=4096, num_local_experts=8, num_experts_per_tok=2,
                    num_hidden_layers=3, num_attention_heads=32, num_key_value_heads=8),
    # OLMoE 1B-7B, experts half as wide
    "olmoe": dict(hidden_size=2048, intermediate_size=512, num_experts=64, num_experts_per_tok=8, num_hidden_layers=3,
                  num_attention_heads=16, num_key_value_heads=16, norm_topk_prob=False),
    # gpt-oss 20B, half of the experts, half as wide
    "gpt_oss": dict(hidden_size=2880, intermediate_size=1472, num_local_experts=16, num_experts_per_tok=4,
                    num_hidden_layers=2, num_attention_heads=64, num_key_value_heads=8, head_dim=64,
                    sliding_window=128, layer_types=["sliding_attention", "full_attention"], attention_bias=True,
                    rope_theta=150000.0, swiglu_limit=7.0,
                    rope_scaling=dict(rope_type="yarn", factor=32.0, original_max_position_embeddings=4096,
                                      beta_fast=32.0, beta_slow=1.0, truncate=True)),
    # DeepSeek V2 Lite's widths, experts half as wide, V3's routing and query factors
    "deepseek_v3": dict(hidden_size=2048, intermediate_size=10944, moe_intermediate_size=704, n_routed_experts=64,
                        num_experts_per_tok=6, n_shared_experts=2, n_group=8, topk_group=4, norm_topk_prob=True,
                        routed_scaling_factor=2.5, first_k_dense_replace=1, moe_layer_freq=1, num_hidden_layers=3,
                        num_attention_heads=16, num_key_value_heads=16, q_lora_rank=1536, kv_lora_rank=512,
                        qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128, topk_method="noaux_tc",
                        scoring_func="sigmoid", rope_scaling=YARN),
    # Qwen3-Next 80B-A3B with 64 of 512 experts
    "qwen3_next": dict(MOE | DELTA, linear_num_value_heads=32, hidden_size=2048, intermediate_size=5120,
                       moe_intermediate_size=512, shared_expert_intermediate_size=512, num_experts=64,
                       num_experts_per_tok=10, num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=2,
                       head_dim=256, rope_theta=1e7),
    # Qwen3.5 2B
    "qwen3_5": dict(DELTA, hidden_size=2048, intermediate_size=6144, num_hidden_layers=8, num_attention_heads=8,
                    num_key_value_heads=2, head_dim=256, rope_theta=1e7),
    # Qwen3.5 35B-A3B with 64 of 256 experts
    "qwen3_5_moe": dict(MOE | DELTA, linear_num_value_heads=32, hidden_size=2048, moe_intermediate_size=512,
                        shared_expert_intermediate_size=512, num_experts=64, num_experts_per_tok=8,
                        num_hidden_layers=4, num_attention_heads=16, num_key_value_heads=2, head_dim=256,
                        rope_theta=1e7),
    # Gemma 4 12B's widths, halved
    "gemma4": dict(hidden_size=1920, intermediate_size=7680, num_hidden_layers=6, num_attention_heads=8,
                   num_key_value_heads=4, num_global_key_value_heads=1, head_dim=256, global_head_dim=512,
                   sliding_window=1024, sliding_window_pattern=6, final_logit_softcapping=30.0,
                   hidden_activation="gelu_pytorch_tanh", attention_k_eq_v=True, hidden_size_per_layer_input=0,
                   num_kv_shared_layers=0, tie_word_embeddings=True,
                   rope_parameters={"full_attention": {"rope_type": "proportional", "rope_theta": 1e6,
                                                       "partial_rotary_factor": 0.25},
                                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}),
}
NESTED = {"qwen3_5", "qwen3_5_moe", "gemma4"}  # the language model's keys under text_config


def full_config(family):
    config = BASE | FAMILIES[family] | {"model_type": family}
    if "hidden_activation" in config:
        del config["hidden_act"]
    if family.startswith("qwen3_5"):
        config["rope_parameters"] = {"rope_type": "default", "rope_theta": config.pop("rope_theta"),
                                     "partial_rotary_factor": config.pop("partial_rotary_factor")}
    if family not in NESTED:
        return config
    text = config | {"model_type": family + "_text"}
    return {"model_type": family, "text_config": text, "tie_word_embeddings": config["tie_word_embeddings"],
            "eos_token_id": 2, "vocab_size": config["vocab_size"]}


def random_like(name, array, rng):
    """Random contents of a parameter, of which only shape and type are asked: nothing is computed by mlx."""
    shape = array.shape
    if array.dtype == mx.uint32:
        return mx.array(rng.integers(0, 1 << 32, shape, dtype=np.uint32))
    if name.endswith(".scales"):  # codes spread over 0 ... 15 by 4.6: weights of 1/sqrt(inputs)
        inputs = shape[-1] * GROUP
        return mx.array(rng.uniform(0.8, 1.2, shape).astype(np.float32) / (4.6 * inputs**0.5)).astype(array.dtype)
    if name.endswith(".biases"):
        inputs = shape[-1] * GROUP
        return mx.full(shape, -7.5 / (4.6 * inputs**0.5), dtype=array.dtype)
    if len(shape) < 2:
        low = 0.9 if "norm" in name else 0.0
        return mx.array(rng.uniform(low, 1.1, shape).astype(np.float32)).astype(array.dtype)
    spread = rng.standard_normal(shape, dtype=np.float32) / shape[-1]**0.5
    return mx.array(spread).astype(array.dtype)


def write(family, out):
    rng = np.random.default_rng(7)
    config = full_config(family)
    model_class, args_class = utils._get_classes(config)
    model = model_class(args_class.from_dict(config))
    narrow = lambda a: a.astype(mx.bfloat16) if a.dtype == mx.float32 else a
    model.update(mlx.utils.tree_map(narrow, model.parameters()))
    if config.get("tie_word_embeddings"):
        model.pop("lm_head", None)
    model, config = utils.quantize_model(model, config, GROUP, 4)
    filled = [(name, random_like(name, array, rng)) for name, array in mlx.utils.tree_flatten(model.parameters())]
    model.update(mlx.utils.tree_unflatten(filled))
    scratch = out.with_name(out.name + ".tmp")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    utils.save_model(scratch, model)
    utils.save_config(config, config_path=scratch / "config.json")
    scratch.rename(out)
    size = sum(f.stat().st_size for f in out.glob("*.safetensors"))
    print(f"{out}: {size / 1e6:.0f} MB")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("families", nargs="*", help=", ".join(FAMILIES))
    options = parser.parse_args()
    for family in options.families or FAMILIES:
        target = options.out / family
        if target.exists():
            print(f"{target}: there already")
            continue
        write(family, target)


if __name__ == "__main__":
    main()
