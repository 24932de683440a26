#!/usr/bin/env python3
"""Gated delta net families as GGUF files, from the tiny Hugging Face checkpoints, and what llama.cpp computes for them.

  tests/data/models/gguf/qwen35.gguf       qwen3_5 in bf16, value heads in llama.cpp's tiled order
  tests/data/models/gguf/qwen35moe.gguf    qwen3_5_moe, its last two layers; experts in Q4_0, other matrices in Q8_0; and the
                                           beginning of a block that predicts further tokens, as released files have
  tests/data/models/gguf/qwen3next.gguf    qwen3_next likewise, value heads in the order they have
  tests/data/models/gguf/*.safetensors     input_ids [40] and llama.cpp's logits [40, V] in f32, from the same weights as
                                           F32 and with F32 keys and values

Usage: make_hybrid_gguf.py TINY   (from the repository's root; TINY holds qwen3_5/, qwen3_5_moe/ and qwen3_next/)
Needs the PyPI packages gguf, numpy and llama-cpp-python. Keys, names and values are those of llama.cpp's converter
(docs/models.md 7).
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
OUTER = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
         "lm_head.weight": "output.weight"}
BLOCK = {
    "input_layernorm.weight": "attn_norm.weight",
    "post_attention_layernorm.weight": "post_attention_norm.weight",
    "self_attn.q_proj.weight": "attn_q.weight",
    "self_attn.k_proj.weight": "attn_k.weight",
    "self_attn.v_proj.weight": "attn_v.weight",
    "self_attn.o_proj.weight": "attn_output.weight",
    "self_attn.q_norm.weight": "attn_q_norm.weight",
    "self_attn.k_norm.weight": "attn_k_norm.weight",
    "linear_attn.in_proj_qkv.weight": "attn_qkv.weight",
    "linear_attn.in_proj_z.weight": "attn_gate.weight",
    "linear_attn.in_proj_b.weight": "ssm_beta.weight",
    "linear_attn.in_proj_a.weight": "ssm_alpha.weight",
    "linear_attn.in_proj_ba.weight": "ssm_ba.weight",
    "linear_attn.conv1d.weight": "ssm_conv1d.weight",
    "linear_attn.A_log": "ssm_a",
    "linear_attn.dt_bias": "ssm_dt.bias",
    "linear_attn.norm.weight": "ssm_norm.weight",
    "linear_attn.out_proj.weight": "ssm_out.weight",
    "mlp.gate_proj.weight": "ffn_gate.weight",
    "mlp.up_proj.weight": "ffn_up.weight",
    "mlp.down_proj.weight": "ffn_down.weight",
    "mlp.gate.weight": "ffn_gate_inp.weight",
    "mlp.shared_expert_gate.weight": "ffn_gate_inp_shexp.weight",
    "mlp.shared_expert.gate_proj.weight": "ffn_gate_shexp.weight",
    "mlp.shared_expert.up_proj.weight": "ffn_up_shexp.weight",
    "mlp.shared_expert.down_proj.weight": "ffn_down_shexp.weight",
    "mlp.experts.gate_proj.weight": "ffn_gate_exps.weight",
    "mlp.experts.up_proj.weight": "ffn_up_exps.weight",
    "mlp.experts.down_proj.weight": "ffn_down_exps.weight",
}


def last_layers(config, tensors, count):
    """The model of the last `count` layers alone."""
    first = config["num_hidden_layers"] - count
    kept = {}
    for name, array in tensors.items():
        if not name.startswith("model.layers."):
            kept[name] = array
            continue
        _, _, layer, rest = name.split(".", 3)
        if int(layer) >= first:
            kept[f"model.layers.{int(layer) - first}.{rest}"] = array
    return {**config, "num_hidden_layers": count, "layer_types": config["layer_types"][first:]}, kept


def stack_experts(config, tensors):
    result = {name: array for name, array in tensors.items() if ".mlp.experts." not in name}
    if "num_experts" not in config:
        return result
    for layer in range(config["num_hidden_layers"]):
        for part in ("gate_proj", "up_proj", "down_proj"):
            where = f"model.layers.{layer}.mlp.experts"
            result[f"{where}.{part}.weight"] = np.stack(
                [tensors[f"{where}.{e}.{part}.weight"] for e in range(config["num_experts"])])
    return result


def tile(array, axis, config, width):
    """Value heads of `width` entries along `axis` from grouped to tiled: new head j·nk + i is old head i·r + j."""
    nk, nv = config["linear_num_key_heads"], config["linear_num_value_heads"]
    shape = array.shape
    parts = array.reshape(shape[:axis] + (nk, nv // nk, width) + shape[axis + 1 :])
    return np.ascontiguousarray(np.swapaxes(parts, axis, axis + 1)).reshape(shape)


def convert(config, tensors, tiled):
    """Values as the converter stores them."""
    nk, dk = config["linear_num_key_heads"], config["linear_key_head_dim"]
    nv, dv = config["linear_num_value_heads"], config["linear_value_head_dim"]
    keys, group = nk * dk, nv // nk
    result = {}
    for name, array in tensors.items():
        if name.endswith("norm.weight") and not name.endswith("linear_attn.norm.weight"):
            array = array + np.float32(1)
        if name.endswith("in_proj_qkvz.weight"):
            parts = np.split(array.reshape(nk, -1, array.shape[1]), [dk, 2 * dk, 2 * dk + group * dv], axis=1)
            q, k, v, z = (np.ascontiguousarray(part).reshape(-1, array.shape[1]) for part in parts)
            result[name.replace("qkvz", "qkv")] = np.concatenate([q, k, v])
            result[name.replace("qkvz", "z")] = z
            continue
        if name.endswith("conv1d.weight"):
            array = array.reshape(array.shape[0], -1)
        if name.endswith("A_log"):
            array = -np.exp(array)
        if tiled and ".linear_attn." in name:
            if name.endswith("in_proj_qkv.weight") or name.endswith("conv1d.weight"):
                array = np.concatenate([array[: 2 * keys], tile(array[2 * keys :], 0, config, dv)])
            elif name.endswith("in_proj_z.weight"):
                array = tile(array, 0, config, dv)
            elif name.endswith(("in_proj_a.weight", "in_proj_b.weight", "A_log", "dt_bias")):
                array = tile(array, 0, config, 1)
            elif name.endswith("out_proj.weight"):
                array = tile(array, 1, config, dv)
        result[name] = array
    return result


def gguf_name(name):
    if name in OUTER:
        return OUTER[name]
    _, _, layer, rest = name.split(".", 3)
    return f"blk.{layer}.{BLOCK[rest]}"


def add_metadata(out, config, ahead):
    out.add_block_count(config["num_hidden_layers"] + ahead)
    if ahead:
        out.add_uint32(f"{out.arch}.nextn_predict_layers", ahead)
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    if "intermediate_size" in config:
        out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_key_length(config["head_dim"])
    out.add_value_length(config["head_dim"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rotary = int(config["head_dim"] * config["partial_rotary_factor"])
    out.add_rope_dimension_count(rotary)
    out.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    if out.arch != "qwen3next":
        out.add_rope_dimension_sections([rotary // 2 - 2, 1, 1, 0])
    out.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    out.add_ssm_state_size(config["linear_key_head_dim"])
    out.add_ssm_group_count(config["linear_num_key_heads"])
    out.add_ssm_time_step_rank(config["linear_num_value_heads"])
    out.add_ssm_inner_size(config["linear_value_head_dim"] * config["linear_num_value_heads"])
    out.add_uint32(f"{out.arch}.full_attention_interval", config["num_hidden_layers"])
    if "num_experts" in config:
        out.add_expert_count(config["num_experts"])
        out.add_expert_used_count(config["num_experts_per_tok"])
        out.add_expert_feed_forward_length(config["moe_intermediate_size"])
        out.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    out.add_vocab_size(config["vocab_size"])
    out.add_tokenizer_model("none")
    out.add_bos_token_id(config["bos_token_id"])
    out.add_eos_token_id(config["eos_token_id"])


def write(path, architecture, config, tensors, kind_of, ahead=0):
    out = gguf.GGUFWriter(path, architecture)
    add_metadata(out, config, ahead)
    for name in ("attn_norm", "nextn.enorm") if ahead else ():
        out.add_tensor(f"blk.{config['num_hidden_layers']}.{name}.weight", np.ones(config["hidden_size"], np.float32))
    for name, array in tensors.items():
        kind = kind_of(name, array)
        if kind == T.F32:
            out.add_tensor(gguf_name(name), np.ascontiguousarray(array, np.float32))
        else:
            out.add_tensor(gguf_name(name), gguf.quants.quantize(array, kind), raw_dtype=kind)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


def make(tiny, family, architecture, layers, matrix_kind, expert_kind):
    config = json.loads((tiny / family / "config.json").read_text())
    tensors = {name: to_f32(array) if array.dtype == np.uint16 else array
               for name, array in read_safetensors(tiny / family / "model.safetensors").items()}
    expected = read_safetensors(tiny / family / "expected.safetensors")
    whole = layers == config["num_hidden_layers"]
    config, tensors = last_layers(config, tensors, layers)
    tensors = convert(config, stack_experts(config, tensors), architecture != "qwen3next")

    def kind_of(name, array):
        if array.ndim < 2 or name.endswith(("conv1d.weight", ".mlp.gate.weight", "shared_expert_gate.weight")):
            return T.F32
        return expert_kind if ".experts." in name else matrix_kind

    OUT.mkdir(parents=True, exist_ok=True)
    write(OUT / f"{architecture}.gguf", architecture, config, tensors, kind_of, int(architecture == "qwen35moe"))
    twin = {}
    for name, array in tensors.items():
        kind = kind_of(name, array)
        twin[name] = array if kind == T.F32 else gguf.quants.dequantize(gguf.quants.quantize(array, kind), kind)
    ids = expected["input_ids_0"]
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "f32.gguf"
        write(path, architecture, config, twin, lambda name, array: T.F32)
        logits = llama_cpp_logits(path, ids)
    write_safetensors(OUT / f"{architecture}.safetensors", {"input_ids": ("I32", ids), "logits": ("F32", logits)})
    if whole:
        print(architecture, "llama.cpp against Hugging Face:", np.abs(logits - expected["logits_0"]).max())


if __name__ == "__main__":
    tiny = pathlib.Path(sys.argv[1])
    make(tiny, "qwen3_5", "qwen35", 4, T.BF16, T.BF16)
    make(tiny, "qwen3_5_moe", "qwen35moe", 2, T.Q8_0, T.Q4_0)
    make(tiny, "qwen3_next", "qwen3next", 2, T.Q8_0, T.Q4_0)
