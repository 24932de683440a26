#!/usr/bin/env python3
"""Tiny random checkpoints quantized by mlx, with mlx's logits, for what the Hugging Face fixtures are too narrow for: groups of 128 and
widths that differ from module to module. Needs the PyPI packages mlx[cpu], mlx-lm (made with 0.32.4 and 0.32.2), numpy, safetensors.

  tests/data/models/mlx/llama-mixed-128-affine      4 bits g128; attention 6 g64, down_proj 3 g128, head 8 g32, one layer's up_proj bf16
  tests/data/models/mlx/qwen3_moe-5-128-affine      5 bits g128, stacked experts too; routers 8 g64; layer 1's experts 2 g128

Usage: make_mlx_models.py   (from the repository's root)
"""
import json
import pathlib

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models import llama, qwen3_moe

mx.set_default_device(mx.cpu)
OUT = pathlib.Path("tests/data/models/mlx")
COMMON = {"hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "rms_norm_eps": 1e-6, "vocab_size": 128,
          "max_position_embeddings": 512, "rope_theta": 10000.0, "rope_scaling": None, "tie_word_embeddings": False,
          "eos_token_id": 2, "dtype": "bfloat16", "hidden_act": "silu", "attention_bias": False}
LLAMA = {**COMMON, "model_type": "llama", "intermediate_size": 128, "num_hidden_layers": 2, "mlp_bias": False}
MOE = {**COMMON, "model_type": "qwen3_moe", "intermediate_size": 128, "num_hidden_layers": 2, "num_experts": 4, "num_experts_per_tok": 2,
       "moe_intermediate_size": 128, "decoder_sparse_step": 1, "mlp_only_layers": [], "norm_topk_prob": True}


def llama_rule(path):
    if "self_attn" in path:
        return {"bits": 6, "group_size": 64}
    if "down_proj" in path:
        return {"bits": 3, "group_size": 128}
    if path == "lm_head":
        return {"bits": 8, "group_size": 32}
    return False if path == "model.layers.1.mlp.up_proj" else True


def moe_rule(path):
    if path.endswith("mlp.gate"):
        return {"bits": 8, "group_size": 64}
    return {"bits": 2, "group_size": 128} if "layers.1.mlp.switch_mlp" in path else True


def make(name, module, config, bits, rule, seed):
    model = module.Model(module.ModelArgs.from_dict(config))
    rng = np.random.default_rng(seed)

    def fill(p):
        value = rng.standard_normal(p.shape) * 0.1 + 1 if p.ndim == 1 else rng.standard_normal(p.shape) * (1.5 / p.shape[-1] ** 0.5)
        return mx.array(value.astype(np.float32)).astype(mx.bfloat16)

    model.update(tree_map(fill, model.parameters()))
    quantization = {"group_size": 128, "bits": bits, "mode": "affine"}

    def predicate(path, m):
        if not hasattr(m, "to_quantized"):
            return False
        choice = rule(path)
        if choice is not True:
            quantization[path] = choice
        return choice

    nn.quantize(model, group_size=128, bits=bits, class_predicate=predicate)
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / "model.safetensors"), dict(tree_flatten(model.parameters())), metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps({**config, "quantization": quantization, "quantization_config": quantization}, indent=1) + "\n")
    expected = {}
    wide = tree_map(lambda p: p.astype(mx.float32) if p.dtype == mx.bfloat16 else p, model.parameters())
    model.update(wide)
    for i, count in enumerate((40, 23)):
        ids = mx.array(rng.integers(0, config["vocab_size"], count).astype(np.int32))
        expected[f"input_ids_{i}"] = ids
        expected[f"logits_{i}"] = model(ids[None])[0].astype(mx.float32)
    mx.save_safetensors(str(folder / "expected.safetensors"), expected)


make("llama-mixed-128-affine", llama, LLAMA, 4, llama_rule, 11)
make("qwen3_moe-5-128-affine", qwen3_moe, MOE, 5, moe_rule, 12)
