#!/usr/bin/env python3
"""Goldens for the GGUF reader, made with the PyPI packages gguf and numpy.

  tests/data/gguf/blocks.safetensors  64 random blocks of each format and the f32 values gguf decodes them to
  tests/data/gguf/hashes.txt          format, FNV-1a of the values of 2,048 more blocks (test and script draw the same bytes)
  tests/data/models/gguf/...          the tiny Hugging Face checkpoints of tests/data/models/hf as GGUF files: llama (q/k rows
                                      interleaved, rope_freqs), qwen2 (version 2), qwen3 (split in two), gemma3 (norms 1+w),
                                      qwen3moe (a dense layer too), gpt-oss (experts in MXFP4)

Usage: make_gguf_goldens.py   (from the repository's root)
"""
import json
import math
import pathlib
import struct

import gguf
import numpy as np
from gguf import GGMLQuantizationType as T

from golden_files import read_safetensors, to_f32, write_safetensors

ROOT = pathlib.Path("tests/data")
# format: byte offsets of the high bytes of f16/bf16 fields, whose top exponent bit is cleared so that values stay finite
FORMATS = {
    T.Q4_0: [1], T.Q4_1: [1, 3], T.Q5_0: [1], T.Q5_1: [1, 3], T.Q8_0: [1], T.Q2_K: [81, 83], T.Q3_K: [109], T.Q4_K: [1, 3],
    T.Q5_K: [1, 3], T.Q6_K: [209], T.IQ4_NL: [1], T.MXFP4: [], T.F16: [1], T.BF16: [1], T.F32: [3],
}


def splitmix(seed, count):
    """count u64 of splitmix64, the test's generator."""
    with np.errstate(over="ignore"):
        z = np.uint64(seed) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def random_blocks(kind, seed, count):
    size = gguf.GGML_QUANT_SIZES[kind][1]
    data = splitmix(seed, (count * size + 7) // 8).view(np.uint8)[: count * size].reshape(count, size).copy()
    for at in FORMATS[kind]:
        data[:, at] &= 0xBF
    return data


def decode(kind, blocks):
    if kind == T.F32:
        return blocks.view(np.float32)
    if kind == T.F16:
        return blocks.view(np.float16).astype(np.float32)
    return gguf.quants.dequantize(blocks, kind).astype(np.float32)


def fnv1a(data):
    value = 0xCBF29CE484222325
    for byte in data:
        value = ((value ^ byte) * 0x100000001B3) & 0xFFFFFFFFFFFFFFFF
    return value


def make_blocks():
    (ROOT / "gguf").mkdir(parents=True, exist_ok=True)
    tensors, lines = {}, []
    for kind in FORMATS:
        blocks = random_blocks(kind, 1000 + kind.value, 64)
        tensors[kind.name + ".blocks"] = ("U8", blocks)
        tensors[kind.name + ".values"] = ("F32", decode(kind, blocks))
        values = decode(kind, random_blocks(kind, 2000 + kind.value, 2048)) + np.float32(0)  # -0 becomes +0
        assert not np.isnan(values).any()
        lines.append(f"{kind.name} {kind.value} {fnv1a(values.astype('<f4').tobytes()):016x}")
    write_safetensors(ROOT / "gguf" / "blocks.safetensors", tensors)
    (ROOT / "gguf" / "hashes.txt").write_text("\n".join(lines) + "\n")


def read_hf(folder):
    tensors = read_safetensors(folder / "model.safetensors")
    assert all(array.dtype == np.uint16 for array in tensors.values())
    return json.loads((folder / "config.json").read_text()), tensors


def interleave(rows, heads):
    """Within each head, row i of half s goes to row 2i+s."""
    shape = rows.shape
    return np.ascontiguousarray(rows.reshape(heads, 2, shape[0] // heads // 2, *shape[1:]).swapaxes(1, 2).reshape(shape))


BLOCK = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
EXPERTS = {"gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps"}
FOLDERS = {"qwen3moe": "qwen3_moe", "gpt-oss": "gpt_oss"}
OUTER = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}


def gguf_name(arch, name):
    if name.startswith("blk."):
        return name
    stem, ending = name.rsplit(".", 1)
    if ending == "sinks":
        stem, ending = name, "weight"
    if stem in OUTER:
        return f"{OUTER[stem]}.{ending}"
    _, _, layer, module = stem.split(".", 3)
    block = dict(BLOCK)
    if arch == "gemma3":
        block |= {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
                  "post_feedforward_layernorm": "post_ffw_norm"}
    else:
        block["post_attention_layernorm"] = "post_attention_norm" if arch == "gpt-oss" else "ffn_norm"
    block |= {"mlp.gate": "ffn_gate_inp", "mlp.router": "ffn_gate_inp", "self_attn.sinks": "attn_sinks"}
    return f"blk.{layer}.{block[module]}.{ending}"


def llama3_factors(rope, head_dim):
    """What llama.cpp's converter writes: by how much llama 3 divides each frequency."""
    low, high, old = rope["low_freq_factor"], rope["high_freq_factor"], rope["original_max_position_embeddings"]
    factors = []
    for i in range(head_dim // 2):
        frequency = rope["rope_theta"] ** (-2 * i / head_dim)
        wavelength = 2 * math.pi / frequency
        if wavelength < old / high:
            factors.append(1.0)
        elif wavelength > old / low:
            factors.append(rope["factor"])
        else:
            smooth = (old / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / rope["factor"] + smooth))
    return np.array(factors, np.float32)


def stack_experts(tensors):
    """qwen3_moe's module an expert as [E, rows, cols] under the stacks' GGUF names."""
    stacks, rest = {}, {}
    for name, bf16 in tensors.items():
        if ".experts." not in name:
            rest[name] = bf16
            continue
        parts = name.split(".")  # model layers L mlp experts E gate_proj weight
        stacks.setdefault(f"blk.{parts[2]}.{EXPERTS[parts[6]]}.weight", {})[int(parts[5])] = bf16
    return rest | {name: np.stack([each[e] for e in sorted(each)]) for name, each in stacks.items()}


def split_experts(tensors):
    """gpt-oss' [E, in, 2·out] with interleaved columns as gate and up [E, out, in], under their GGUF names."""
    result = {}
    for name, bf16 in tensors.items():
        parts = name.split(".")
        if ".experts." not in name:
            result[name] = bf16
            continue
        block, what = f"blk.{parts[2]}.", parts[5]
        if what == "gate_up_proj":
            turned = bf16.swapaxes(1, 2)
            result[block + "ffn_gate_exps.weight"] = np.ascontiguousarray(turned[:, 0::2])
            result[block + "ffn_up_exps.weight"] = np.ascontiguousarray(turned[:, 1::2])
        elif what == "gate_up_proj_bias":
            result[block + "ffn_gate_exps.bias"] = np.ascontiguousarray(bf16[:, 0::2])
            result[block + "ffn_up_exps.bias"] = np.ascontiguousarray(bf16[:, 1::2])
        elif what == "down_proj":
            result[block + "ffn_down_exps.weight"] = np.ascontiguousarray(bf16.swapaxes(1, 2))
        else:
            result[block + "ffn_down_exps.bias"] = bf16
    return result


def make_model(arch, split=0, experts=T.BF16):
    config, tensors = read_hf(ROOT / "models" / "hf" / FOLDERS.get(arch, arch))
    folder = ROOT / "models" / "gguf"
    folder.mkdir(parents=True, exist_ok=True)
    stem = arch if experts == T.BF16 else f"{arch}-{experts.name.lower()}"
    path = folder / f"{stem}.gguf"
    for old in [path, *folder.glob(f"{stem}-0*.gguf")]:
        old.unlink(missing_ok=True)
    if arch == "qwen3moe":
        tensors = stack_experts(tensors)
    if arch == "gpt-oss":
        tensors = split_experts(tensors)
    out = gguf.GGUFWriter(path, arch, split_max_tensors=split)
    out.add_block_count(config["num_hidden_layers"])
    out.add_context_length(config["max_position_embeddings"])
    out.add_embedding_length(config["hidden_size"])
    out.add_feed_forward_length(config["intermediate_size"])
    out.add_head_count(config["num_attention_heads"])
    out.add_head_count_kv(config["num_key_value_heads"])
    out.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config["rope_parameters"]
    head_dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
    if "head_dim" in config:
        out.add_key_length(head_dim)
        out.add_value_length(head_dim)
    out.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if arch == "gemma3":
        out.add_sliding_window(config["sliding_window"])
    if arch == "llama":
        out.add_rope_dimension_count(head_dim)
        out.add_tensor("rope_freqs.weight", llama3_factors(rope, head_dim))
    if arch == "qwen3moe":
        out.add_expert_count(config["num_local_experts"])
        out.add_expert_used_count(config["num_experts_per_tok"])
        out.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if arch == "gpt-oss":
        out.add_sliding_window(config["sliding_window"])
        out.add_expert_count(config["num_local_experts"])
        out.add_expert_used_count(config["num_experts_per_tok"])
        out.add_expert_feed_forward_length(config["intermediate_size"])
        out.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        out.add_rope_scaling_factor(rope["factor"])
        out.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    out.add_bos_token_id(config["bos_token_id"])
    out.add_eos_token_id(config["eos_token_id"])
    for name, bf16 in tensors.items():
        if arch == "llama" and ".q_proj." in name:
            bf16 = interleave(bf16, config["num_attention_heads"])
        if arch == "llama" and ".k_proj." in name:
            bf16 = interleave(bf16, config["num_key_value_heads"])
        if name.endswith("exps.weight") and experts != T.BF16:
            out.add_tensor(name, gguf.quants.quantize(to_f32(bf16), experts), raw_dtype=experts)
        elif bf16.ndim == 1 or name.endswith("exps.bias"):
            f32 = to_f32(bf16)
            if arch == "gemma3" and name.endswith("norm.weight"):
                f32 = f32 + np.float32(1)
            out.add_tensor(gguf_name(arch, name), f32)
        else:
            out.add_tensor(gguf_name(arch, name), bf16.view(np.uint8), raw_dtype=T.BF16)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()
    if arch == "qwen2":  # version 2 has the same layout
        data = bytearray(path.read_bytes())
        data[4:8] = struct.pack("<I", 2)
        path.write_bytes(data)


make_blocks()
make_model("llama")
make_model("qwen2")
make_model("qwen3", split=14)
make_model("gemma3")
make_model("qwen3moe")
make_model("gpt-oss", experts=T.MXFP4)
