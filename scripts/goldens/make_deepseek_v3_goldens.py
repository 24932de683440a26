#!/usr/bin/env python3
"""Tiny random deepseek_v3 checkpoints with reference logits, for tests/models.

  make_deepseek_v3_goldens.py OUT        (OUT is tests/data/models)

Needs the Python packages torch, transformers, mlx, mlx-lm, safetensors and numpy. Writes
  hf/deepseek_v3, hf/deepseek_v3-direct          bf16 weights; logits, hidden states and greedy tokens of transformers,
                                                 eager attention, float32
  mlx/deepseek_v3-4-32-affine, -6-64-affine      the same kind of model quantised by mlx-lm, logits of mlx in float32
  hf/deepseek_v3-kv_b                            the second one with kv_b_proj quantised by mlx
  hf/deepseek_v3-fp8                             the first one's weights in e4m3 with weight_scale_inv, logits of
                                                 transformers on the dequantised weights
Both inputs are longer than original_max_position_embeddings, so that yarn's parts all count.
"""
import argparse
import json
import pathlib
import shutil

import mlx.core as mx
import mlx.utils
import numpy as np
import torch
from mlx_lm import utils as mlx_utils
from safetensors.torch import load_file, save_file
from transformers import DeepseekV3Config, DeepseekV3ForCausalLM

YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 16,
        "beta_fast": 32, "beta_slow": 1, "mscale": 0.7, "mscale_all_dim": 0.9}
COMMON = dict(vocab_size=256, hidden_size=64, intermediate_size=96, moe_intermediate_size=32, num_hidden_layers=3,
              num_attention_heads=4, num_key_value_heads=4, n_routed_experts=8, num_experts_per_tok=3,
              first_k_dense_replace=1, max_position_embeddings=512, bos_token_id=1, eos_token_id=2, pad_token_id=0,
              num_nextn_predict_layers=0)
# Groups: 2 of 4 are kept. Widths are uneven on purpose (nope != v, none a multiple of 16 but the rotated part).
LORA = dict(COMMON, intermediate_size=160, q_lora_rank=40, kv_lora_rank=36, qk_nope_head_dim=24, qk_rope_head_dim=16, v_head_dim=20, n_group=4,
            topk_group=2, n_shared_experts=2, routed_scaling_factor=2.5, rms_norm_eps=1e-5, rope_parameters=YARN)
# No q_lora, no groups, biases, half-split rope, weights not renormalised.
DIRECT = dict(COMMON, q_lora_rank=None, kv_lora_rank=32, qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=32,
              n_group=1, topk_group=1, n_shared_experts=1, routed_scaling_factor=1.5, rms_norm_eps=1e-6,
              attention_bias=True, norm_topk_prob=False, rope_interleave=False, num_hidden_layers=2,
              rope_parameters={"rope_type": "default", "rope_theta": 50000.0})
# What mlx can quantise: widths that are multiples of the group.
MLX = dict(COMMON, q_lora_rank=64, kv_lora_rank=64, qk_nope_head_dim=64, qk_rope_head_dim=32, v_head_dim=64,
           intermediate_size=128, moe_intermediate_size=64, n_group=4, topk_group=2, n_shared_experts=1,
           num_hidden_layers=2, routed_scaling_factor=2.5, rms_norm_eps=1e-6, rope_parameters=YARN)


def random_model(keys, seed):
    """A model whose weights are far from their start values, rounded to bf16 (the selection bias stays float32)."""
    torch.manual_seed(seed)
    config = DeepseekV3Config(**keys, dtype="bfloat16")
    config._attn_implementation = "eager"
    model = DeepseekV3ForCausalLM(config).float().eval()
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith("layernorm.weight") or name.endswith("norm.weight"):
                p.copy_(1 + 0.2 * torch.randn_like(p))
            elif name.endswith(".bias"):
                p.copy_(0.1 * torch.randn_like(p))
            elif "kv_a_proj" in name or "q_a_proj" in name:  # small: the eps of the norms after them shows
                p.copy_(0.004 * torch.randn_like(p))
            else:
                p.copy_(torch.randn_like(p) * 1.4 / p.shape[-1] ** 0.5)
            p.copy_(p.bfloat16().float())
        for name, b in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                # mlx masks dropped groups with 0, Hugging Face with -inf: the same as long as all choices are positive.
                b.copy_(0.4 * torch.rand_like(b))
    return model


def inputs(seed, vocab):
    rng = np.random.default_rng(seed)
    return rng.integers(3, vocab, 40).astype(np.int32), rng.integers(3, vocab, 23).astype(np.int32)


@torch.no_grad()
def reference(model, seed):
    ids_0, ids_1 = inputs(seed, model.config.vocab_size)
    run = lambda ids, **k: model(torch.tensor(ids[None].astype(np.int64)), use_cache=False, **k)
    out = run(ids_0, output_hidden_states=True)
    greedy, margin, ids = [], [], list(ids_0)
    for _ in range(24):
        best = run(np.array(ids)).logits[0, -1].topk(2)
        greedy.append(int(best.indices[0]))
        margin.append(float(best.values[0] - best.values[1]))
        ids.append(greedy[-1])
    return {
        "input_ids_0": torch.tensor(ids_0), "input_ids_1": torch.tensor(ids_1),
        "logits_0": out.logits[0].contiguous(), "logits_1": run(ids_1).logits[0].contiguous(),
        "hidden_0": torch.stack([h[0] for h in out.hidden_states]).contiguous(),
        "greedy_0": torch.tensor(greedy, dtype=torch.int32), "greedy_margin_0": torch.tensor(margin),
    }


def bf16_tensors(folder):
    """What save_pretrained wrote, each tensor as a checkpoint of this family has it."""
    tensors = load_file(folder / "model.safetensors")
    return {k: v if k.endswith("e_score_correction_bias") else v.bfloat16() for k, v in tensors.items()}


def write_hf(model, out, seed):
    shutil.rmtree(out, ignore_errors=True)
    model.save_pretrained(out)
    save_file(bf16_tensors(out), out / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((out / "config.json").read_text()) | {"dtype": "bfloat16"}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(reference(model, seed), out / "expected.safetensors",
              metadata={"reference": "transformers eager float32"})


def old_config(folder):
    """config.json with the keys that published checkpoints of the family have (rope_theta, rope_scaling, …)."""
    config = json.loads((folder / "config.json").read_text())
    rope = config.pop("rope_parameters")
    config["rope_theta"] = rope.pop("rope_theta")
    rope["type"] = rope.pop("rope_type")
    config["rope_scaling"] = rope if rope["type"] != "default" else None
    config |= {"dtype": "bfloat16", "topk_method": "noaux_tc", "scoring_func": "sigmoid", "moe_layer_freq": 1, "ep_size": 1}
    return config


def write_fp8(model, source, out, seed):
    """e4m3 codes with one scale per 128 x 128 (here: blocks that do not fill), as DeepSeek publishes them."""
    tensors = load_file(source / "model.safetensors")
    result = {}
    with torch.no_grad():
        for name, w in tensors.items():
            quantised = w.ndim == 2 and not any(s in name for s in ("embed_tokens", "lm_head", "mlp.gate.weight"))
            if not quantised:
                result[name] = w
                continue
            rows, cols = -(-w.shape[0] // 128), -(-w.shape[1] // 128)
            scale = torch.empty(rows, cols)
            codes = torch.empty(w.shape, dtype=torch.float8_e4m3fn)
            for r in range(rows):
                for c in range(cols):
                    block = w.float()[128 * r:128 * (r + 1), 128 * c:128 * (c + 1)]
                    scale[r, c] = block.abs().max() / 448
                    codes[128 * r:128 * (r + 1), 128 * c:128 * (c + 1)] = (block / scale[r, c]).to(torch.float8_e4m3fn)
            result[name], result[name + "_scale_inv"] = codes, scale
    # The judge: a float32 model with the values that the codes mean.
    exact = {}
    for name, w in result.items():
        if name.endswith("_scale_inv"):
            continue
        scale = result.get(name + "_scale_inv")
        exact[name] = w.float()
        if scale is not None:
            wide = scale.repeat_interleave(128, 0)[:w.shape[0]].repeat_interleave(128, 1)[:, :w.shape[1]]
            exact[name] = w.float() * wide
    shutil.rmtree(out, ignore_errors=True)
    scratch = out.with_name(out.name + ".tmp")
    shutil.copytree(source, scratch)
    save_file(exact, scratch / "model.safetensors", metadata={"format": "pt"})
    judge = DeepseekV3ForCausalLM.from_pretrained(scratch, dtype=torch.float32, attn_implementation="eager").eval()
    shutil.rmtree(scratch)
    out.mkdir()
    config = old_config(source)
    config["quantization_config"] = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
                                     "weight_block_size": [128, 128]}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(result, out / "model.safetensors", metadata={"format": "pt"})
    save_file(reference(judge, seed), out / "expected.safetensors",
              metadata={"reference": "transformers eager float32 on the dequantised weights"})


def write_quantised_kv_b(source, out, seed):
    """A checkpoint whose kv_b_proj is quantised as a whole (8 bits, groups of 32), as mlx-lm does not leave it."""
    tensors = load_file(source / "model.safetensors")
    exact = {}
    for name in list(tensors):
        if "kv_b_proj" not in name:
            continue
        codes, scales, biases = mx.quantize(mx.array(tensors[name].float().numpy()).astype(mx.bfloat16), 32, 8)
        wide = [mx.array(codes), scales.astype(mx.float32), biases.astype(mx.float32)]
        exact[name] = torch.tensor(np.array(mx.dequantize(*wide, 32, 8)))
        module = name.removesuffix(".weight")
        tensors[name] = torch.tensor(np.array(codes))
        tensors[module + ".scales"] = torch.tensor(np.array(wide[1])).bfloat16()
        tensors[module + ".biases"] = torch.tensor(np.array(wide[2])).bfloat16()
    judge = DeepseekV3ForCausalLM.from_pretrained(source, dtype=torch.float32, attn_implementation="eager").eval()
    judge.load_state_dict(exact, strict=False)
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    config = old_config(source) | {"quantization": {"bits": 8, "group_size": 32}}
    (out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file(tensors, out / "model.safetensors", metadata={"format": "mlx"})
    save_file(reference(judge, seed), out / "expected.safetensors",
              metadata={"reference": "transformers eager float32 on the dequantised kv_b_proj"})


def write_mlx(model, out, bits, group, seed):
    shutil.rmtree(out, ignore_errors=True)
    hf = out.with_name(out.name + ".hf")
    shutil.rmtree(hf, ignore_errors=True)
    model.save_pretrained(hf)
    save_file(bf16_tensors(hf), hf / "model.safetensors", metadata={"format": "pt"})
    (hf / "config.json").write_text(json.dumps(old_config(hf)))
    loaded, config = mlx_utils.load_model(hf)
    loaded, config = mlx_utils.quantize_model(loaded, config, group, bits)
    out.mkdir(parents=True)
    mlx_utils.save_model(out, loaded)
    mlx_utils.save_config(config, config_path=out / "config.json")
    for extra in ("README.md", "model.safetensors.index.json"):
        (out / extra).unlink(missing_ok=True)
    shutil.rmtree(hf)
    # float32 activations on the stored words: scales and biases keep their bf16 values.
    wide = lambda a: a.astype(mx.float32) if a.dtype in (mx.bfloat16, mx.float16) else a
    loaded.update(mlx.utils.tree_map(wide, loaded.parameters()))
    expected = {}
    for i, ids in enumerate(inputs(seed, config["vocab_size"])):
        expected[f"input_ids_{i}"] = torch.tensor(ids)
        logits = loaded(mx.array(ids[None]))[0].astype(mx.float32)
        expected[f"logits_{i}"] = torch.tensor(np.array(logits))
    save_file(expected, out / "expected.safetensors", metadata={"reference": "mlx float32 activations"})


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=pathlib.Path)
    out = parser.parse_args().out
    lora = random_model(LORA, 11)
    write_hf(lora, out / "hf/deepseek_v3", 101)
    write_fp8(lora, out / "hf/deepseek_v3", out / "hf/deepseek_v3-fp8", 105)
    write_hf(random_model(DIRECT, 12), out / "hf/deepseek_v3-direct", 102)
    write_quantised_kv_b(out / "hf/deepseek_v3-direct", out / "hf/deepseek_v3-kv_b", 106)
    write_mlx(random_model(MLX, 13), out / "mlx/deepseek_v3-4-32-affine", 4, 32, 103)
    write_mlx(random_model(MLX, 14), out / "mlx/deepseek_v3-6-64-affine", 6, 64, 104)


if __name__ == "__main__":
    main()
