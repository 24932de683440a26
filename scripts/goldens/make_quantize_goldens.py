#!/usr/bin/env python3
"""Goldens of mlx.core.quantize, made with the PyPI packages mlx[cpu] (0.32.4), numpy and safetensors.

  tests/data/quant/weights.safetensors   f32 [rows, 128] weights by element type (f32, f16, bf16): random ones of several
                                         magnitudes and what is likely to go wrong (see `hard`)
  tests/data/quant/encoded.txt           for each type, mode, bits and group: FNV-1a of the codes, scales and biases as mlx stores them
  tests/data/quant/encoded.safetensors   the same in full for three of them, for a person to look at when a hash differs

Usage: make_quantize_goldens.py   (from the repository's root)
"""
import pathlib

import mlx.core as mx
import numpy as np
from safetensors.numpy import save_file

mx.set_default_device(mx.cpu)
OUT = pathlib.Path("tests/data/quant")
TYPES = {"f32": mx.float32, "f16": mx.float16, "bf16": mx.bfloat16}
LARGEST = {"f32": 3.4028235e38, "f16": 65504.0, "bf16": 3.3895314e38}
FORMATS = [("affine", b, g) for b in (2, 3, 4, 5, 6, 8) for g in (32, 64, 128)] + [
    ("mxfp4", 4, 32), ("mxfp8", 8, 32), ("nvfp4", 4, 16)]


def hard(rng, largest):
    """Rows of 128 that encoders trip over."""
    rows = [np.zeros(128), np.full(128, -0.0), np.full(128, 0.37), np.full(128, -1.5), np.full(128, 1e-7), np.full(128, -3e-8)]
    rows += [rng.uniform(-2, -1, 128), rng.uniform(1, 2, 128), rng.uniform(-1, 1, 128) * 1e-39, rng.uniform(-1, 1, 128) * 1e-6]
    rows += [rng.uniform(0.4, 1, 128) * largest, rng.uniform(-1, -0.4, 128) * largest]  # no group spans more than `largest`
    rows += [np.tile([largest, -largest], 64), np.tile([largest / 2, -largest / 2], 64)]
    rows += [np.arange(128) / 8.0 - 8, np.arange(128) / 2.0 % 7, np.tile([0.25, 0.75, 1.25, 1.75, 2.5, 3.5, 5, 6], 16)]  # ties
    rows += [np.tile([-0.25, -0.75, -1.25, -1.75, -2.5, -3.5, -5, -6], 16), np.tile([1, -1], 64), np.tile([-1, 1 - 2**-8], 64)]
    one = np.zeros(128)
    one[::40] = (3, -3, 3, 1)
    rows += [one, -one, np.where(np.arange(128) % 32 == 5, 100, rng.standard_normal(128))]
    rows += [2.0 ** (rng.integers(-20, 9, 128)) * rng.choice([-1, 1], 128), rng.standard_normal(128) * 2.0 ** (np.arange(128) // 16 * 2 - 14)]
    rows += [np.tile(np.float64(2) ** np.arange(-12, 4), 8) * 6 * 2**0.5]  # the logarithm of the scale lies near a half
    return rows


def fnv(data):
    h = 0xCBF29CE484222325
    for byte in data:
        h = (h ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return h


def raw(array):
    return np.array(array.view(mx.uint8)).tobytes()


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    weights, lines, shown = {}, [], {}
    for name, kind in TYPES.items():
        rng = np.random.default_rng(7)
        rows = hard(rng, LARGEST[name]) + [rng.standard_normal(128) * scale for scale in (0.02, 0.02, 0.1, 1, 30) for _ in range(6)]
        w = mx.array(np.clip(np.stack(rows), -LARGEST[name], LARGEST[name]).astype(np.float32)).astype(kind)
        weights[name] = np.array(w.astype(mx.float32))
        assert np.isfinite(weights[name]).all()
        for mode, bits, group in FORMATS:
            parts = mx.quantize(w, group_size=group, bits=bits, mode=mode)
            lines.append(" ".join([name, mode, str(bits), str(group)] + [f"{fnv(raw(part)):016x}" for part in parts]))
            if name == "bf16" and (mode, bits, group) in (("affine", 3, 128), ("mxfp4", 4, 32), ("nvfp4", 4, 16)):
                for part, label in zip(parts, ("codes", "scales", "biases")):
                    shown[f"{mode}.{label}"] = np.frombuffer(raw(part), np.uint8).reshape(part.shape[0], -1)
    save_file(weights, OUT / "weights.safetensors")
    save_file(shown, OUT / "encoded.safetensors")
    (OUT / "encoded.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
