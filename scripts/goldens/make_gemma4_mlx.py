#!/usr/bin/env python3
"""Gemma 4 checkpoints in MLX's layout with mlx-lm's logits, for what the Hugging Face fixtures lack.

  tests/data/models/mlx/gemma4_edge-4-32-affine  text_config nesting and the older keys: global_head_dim, a key head count
                                                 of its own for full layers, k = v, shared layers with MLPs twice as wide,
                                                 per-layer inputs
  tests/data/models/mlx/gemma4_moe-5-64-affine   experts beside the MLP, the router in 8 bits

Random weights, quantised by mlx-lm; logits at float32 activations from the words as stored. Widths are squares: at float32
mlx does not round the embedding scale √width to bf16, which a bf16 run and we do.
Usage: make_gemma4_mlx.py   (from the repository's root). Needs the PyPI packages mlx[cpu] and mlx-lm.
"""
import json
import pathlib

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_map
from mlx_lm.models import gemma4
from mlx_lm.utils import quantize_model

OUT = pathlib.Path("tests/data/models/mlx")
COMMON = {
    "model_type": "gemma4_text", "hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
    "global_head_dim": 32, "rms_norm_eps": 1e-6, "max_position_embeddings": 512, "sliding_window": 8,
    "final_logit_softcapping": 30.0, "tie_word_embeddings": True, "attention_bias": False, "vocab_size": 256,
    "hidden_activation": "gelu_pytorch_tanh", "attention_k_eq_v": True, "num_global_key_value_heads": 1,
    "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "rope_theta": 1000000.0, "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}},
}
EDGE = COMMON | {
    "num_hidden_layers": 5, "intermediate_size": 96, "num_kv_shared_layers": 2, "use_double_wide_mlp": True,
    "hidden_size_per_layer_input": 64, "vocab_size_per_layer_input": 256, "enable_moe_block": False,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "sliding_attention", "full_attention"],
}
MOE = COMMON | {
    "num_hidden_layers": 3, "intermediate_size": 64, "num_kv_shared_layers": 0, "use_double_wide_mlp": False,
    "hidden_size_per_layer_input": 0, "vocab_size_per_layer_input": 256, "enable_moe_block": True, "num_experts": 8,
    "top_k_experts": 3, "moe_intermediate_size": 64,
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
}


def randomise(model, seed):
    """Norms around 1, scalars below it, matrices large enough that every part of the model shows in the logits."""
    random = np.random.default_rng(seed)

    def value(name, old):
        if name.endswith("layer_scalar"):
            new = random.uniform(0.7, 1.1, old.shape)
        elif old.ndim == 1:
            new = random.normal(1.0, 0.1, old.shape)
        else:
            new = random.normal(0, 0.7 * old.shape[-1] ** -0.5, old.shape)
        return mx.array(new.astype(np.float32)).astype(mx.bfloat16)

    model.load_weights([(name, value(name, old)) for name, old in tree_flatten(model.parameters())])


def make(name, text, seed, bits, group):
    folder = OUT / name
    folder.mkdir(parents=True, exist_ok=True)
    model = gemma4.Model(gemma4.ModelArgs(model_type="gemma4", text_config=dict(text), vocab_size=text["vocab_size"]))
    randomise(model, seed)
    config = {"model_type": "gemma4", "architectures": ["Gemma4ForConditionalGeneration"], "eos_token_id": [1, 106],
              "vocab_size": text["vocab_size"], "text_config": text, "vision_config": {"model_type": "gemma4_vision"}}
    model, config = quantize_model(model, config, group, bits)
    mx.eval(model.parameters())
    stored = dict(tree_flatten(model.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), stored, {"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [1, 106], "suppress_tokens": [7, 300]}) + "\n")
    model.update(tree_map(lambda x: x.astype(mx.float32) if x.dtype == mx.bfloat16 else x, model.parameters()))
    random = np.random.default_rng(seed + 1)
    expected = {}
    for i, count in enumerate((40, 23)):
        ids = mx.array(random.integers(0, text["vocab_size"], count, dtype=np.int32))
        expected[f"input_ids_{i}"] = ids
        logits = model(ids[None])[0]
        assert logits.dtype == mx.float32
        expected[f"logits_{i}"] = logits
        print(name, i, "logits", float(mx.abs(logits).max()), "rms", float(mx.sqrt(mx.mean(logits * logits))))
    mx.save_safetensors(str(folder / "expected.safetensors"), expected)


if __name__ == "__main__":
    make("gemma4_edge-4-32-affine", EDGE, 11, 4, 32)
    make("gemma4_moe-5-64-affine", MOE, 12, 5, 64)
