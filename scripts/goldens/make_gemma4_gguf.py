#!/usr/bin/env python3
"""Gemma 4 as GGUF files, from the tiny Hugging Face checkpoints, and what llama.cpp computes for them.

  tests/data/models/gguf/gemma4_edge.gguf        bf16: shared keys and values, per-layer inputs
  tests/data/models/gguf/gemma4_moe.gguf         fused experts in Q4_0, other matrices Q8_0: attention_k_eq_v, router scales
  tests/data/models/gguf/gemma4_*.safetensors    input_ids [32] and llama.cpp's logits [32, V] in f32, from the same
                                                 weights as F32 and with F32 keys and values

Usage: make_gemma4_gguf.py TINY   (from the repository's root; TINY holds gemma4_edge/ and gemma4_moe/)
Needs the PyPI packages gguf, numpy and llama-cpp-python. The keys are those of llama.cpp's converter (docs/models.md 7).
"""
import json
import pathlib
import sys
import tempfile

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

from golden_files import llama_cpp_logits, read_safetensors, to_f32, write_safetensors

OUT = pathlib.Path("tests/data/models/gguf")
BLOCK = {
    "input_layernorm.weight": "attn_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "pre_feedforward_layernorm.weight": "ffn_norm.weight",
    "pre_feedforward_layernorm_2.weight": "pre_ffw_norm_2.weight",
    "post_feedforward_layernorm.weight": "post_ffw_norm.weight",
    "post_feedforward_layernorm_1.weight": "post_ffw_norm_1.weight",
    "post_feedforward_layernorm_2.weight": "post_ffw_norm_2.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "router.proj.weight": "ffn_gate_inp.weight",
    "router.scale": "ffn_gate_inp.scale",
    "router.per_expert_scale": "ffn_down_exps.scale",
    "experts.gate_up_proj": "ffn_gate_up_exps.weight",
    "experts.down_proj": "ffn_down_exps.weight",
    "per_layer_input_gate.weight": "inp_gate.weight",
    "per_layer_projection.weight": "proj.weight",
    "post_per_layer_input_norm.weight": "post_norm.weight",
    "layer_scalar": "layer_output_scale.weight",
}
OUTER = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "model.embed_tokens_per_layer.weight": "per_layer_token_embd.weight",
    "model.per_layer_model_projection.weight": "per_layer_model_proj.weight",
    "model.per_layer_projection_norm.weight": "per_layer_proj_norm.weight",
}


def gguf_name(name):
    if name in OUTER:
        return OUTER[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{BLOCK[rest]}"


def add_metadata(out, config):
    layers, types = config["num_hidden_layers"], config["layer_types"]
    sliding = [kind == "sliding_attention" for kind in types]
    own = [config["per_layer_config"].get(str(i), {}) for i in range(layers)]
    full = next(i for i in range(layers) if not sliding[i])
    full_dim, head_dim = own[full].get("head_dim", config["head_dim"]), config["head_dim"]
    out.add_block_count(layers)
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv([o.get("num_key_value_heads", config["num_key_value_heads"]) for o in own])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    shared = config["num_kv_shared_layers"]
    wide = 2 if config["use_double_wide_mlp"] else 1
    width = config["intermediate_size"]
    out.add_feed_forward_length([width if i < layers - shared else width * wide for i in range(layers)])
    out.add_shared_kv_layers(shared)
    out.add_embedding_length_per_layer_input(config["hidden_size_per_layer_input"])
    out.add_sliding_window(config["sliding_window"])
    out.add_sliding_window_pattern(sliding)
    out.add_key_length(full_dim)
    out.add_value_length(full_dim)
    out.add_key_length_swa(head_dim)
    out.add_value_length_swa(head_dim)
    out.add_rope_dimension_count(full_dim)
    out.add_rope_dimension_count_swa(head_dim)
    rope = config["rope_parameters"]
    out.add_rope_freq_base(rope["full_attention"]["rope_theta"])
    out.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
    out.add_final_logit_softcapping(config["final_logit_softcapping"])
    if config["enable_moe_block"]:
        out.add_expert_count(config["num_experts"])
        out.add_expert_used_count(config["top_k_experts"])
        out.add_expert_feed_forward_length(config["moe_intermediate_size"])
    live = int(rope["full_attention"]["partial_rotary_factor"] * full_dim / 2)
    factors = [1.0] * live + [1e30] * (full_dim // 2 - live)
    out.add_tensor("rope_freqs.weight", np.array(factors, np.float32))
    out.add_vocab_size(config["vocab_size"])
    out.add_tokenizer_model("none")
    out.add_bos_token_id(config["bos_token_id"])
    out.add_eos_token_id(config["eos_token_id"])


def write(path, config, tensors, kind_of):
    """kind_of(name): the GGUF type of a matrix; F32 stands for the exact values of what the other types would hold."""
    out = gguf.GGUFWriter(path, "gemma4")
    add_metadata(out, config)
    for name, array in tensors.items():
        kind = kind_of(name) if array.ndim > 1 else T.F32
        if kind == T.BF16:
            out.add_tensor(gguf_name(name), array.view(np.uint8), raw_dtype=T.BF16)
        elif kind == T.F32:
            out.add_tensor(gguf_name(name), to_f32(array) if array.dtype == np.uint16 else array)
        else:
            out.add_tensor(gguf_name(name), gguf.quants.quantize(to_f32(array), kind), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def make(tiny, name, kind_of):
    config = json.loads((tiny / name / "config.json").read_text())
    tensors = read_safetensors(tiny / name / "model.safetensors")
    expected = read_safetensors(tiny / name / "expected.safetensors")
    OUT.mkdir(parents=True, exist_ok=True)
    write(OUT / f"{name}.gguf", config, tensors, kind_of)
    twin = {}
    for tensor, array in tensors.items():
        value = to_f32(array)
        kind = kind_of(tensor)
        if array.ndim > 1 and kind not in (T.BF16, T.F32):
            value = gguf.quants.dequantize(gguf.quants.quantize(value, kind), kind)
        twin[tensor] = value
    # Not all 40: ggml's gelu is a table of f16 values, and at position 37 of the MoE that decides between two experts.
    ids = expected["input_ids_0"][:32]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "f32.gguf"
        write(path, config, twin, lambda tensor: T.F32)
        logits = llama_cpp_logits(path, ids)
    write_safetensors(OUT / f"{name}.safetensors", {"input_ids": ("I32", ids), "logits": ("F32", logits)})
    print(name, "llama.cpp against Hugging Face:", np.abs(logits - expected["logits_0"][:32]).max())


if __name__ == "__main__":
    tiny = pathlib.Path(sys.argv[1])
    make(tiny, "gemma4_edge", lambda name: T.BF16)
    make(tiny, "gemma4_moe", lambda name: T.Q4_0 if ".experts." in name else T.F32 if ".router." in name else T.Q8_0)
