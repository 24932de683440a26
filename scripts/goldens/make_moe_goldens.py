#!/usr/bin/env python3
"""Goldens for the mixture-of-experts families, made with the PyPI packages torch, transformers, safetensors and numpy.

  tests/data/models/hf/olmoe/clipped.safetensors   logits_0 [40, V] (f32) of the checkpoint there with clip_qkv = CLIP
  with TRAINED (a folder with a qwen3_moe checkpoint and heldout_ids.npy): prints the summed negative log-likelihood of
  its first 4 windows of 512, for tests/models/trained_moe_test.cpp

All in float32 with eager attention.   Usage: make_moe_goldens.py [TRAINED]   (from the repository's root)
"""
import pathlib
import sys

import numpy as np
import torch
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM

CLIP = 0.75


def load(folder, **changes):
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager", **changes).eval()


def clipped(folder):
    expected = load_file(folder / "expected.safetensors")
    ids = torch.tensor(expected["input_ids_0"].astype(np.int64))[None]
    with torch.no_grad():
        plain = load(folder)(ids).logits[0].numpy()
        assert np.abs(plain - expected["logits_0"]).max() < 1e-5
        model = load(folder, clip_qkv=CLIP)
        logits = model(ids).logits[0].numpy()
    assert np.abs(logits - plain).max() > 1e-2, "the clip does nothing"
    save_file({"logits_0": logits}, folder / "clipped.safetensors", metadata={"clip_qkv": str(CLIP)})
    print("clip moves logits by", np.abs(logits - plain).max())


def windows(folder):
    ids = torch.tensor(np.load(folder / "heldout_ids.npy").astype(np.int64))
    model = load(folder)
    for w in range(4):
        part = ids[512 * w : 512 * w + 513]
        with torch.no_grad():
            logits = model(part[None, :-1]).logits[0].double()
        nll = torch.nn.functional.cross_entropy(logits, part[1:], reduction="sum").item()
        print(f"window {w}: {nll:.4f}")


clipped(pathlib.Path("tests/data/models/hf/olmoe"))
if len(sys.argv) > 1:
    windows(pathlib.Path(sys.argv[1]))
