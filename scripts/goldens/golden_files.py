"""What the generators of GGUF goldens share: safetensors without a framework, and llama.cpp's logits."""
import json
import struct

import numpy as np

KINDS = {"BF16": np.uint16, "F32": np.float32, "I32": np.int32}


def read_safetensors(path):
    """name → array; bf16 as the 16 bits it is stored in."""
    data = path.read_bytes()
    length = struct.unpack("<Q", data[:8])[0]
    tensors = {}
    for name, info in json.loads(data[8 : 8 + length]).items():
        if name == "__metadata__":
            continue
        begin, end = info["data_offsets"]
        raw = data[8 + length + begin : 8 + length + end]
        tensors[name] = np.frombuffer(raw, KINDS[info["dtype"]]).reshape(info["shape"])
    return tensors


def write_safetensors(path, tensors):
    """tensors: name → (dtype word, array)."""
    header, offset, body = {}, 0, b""
    for name, (dtype, array) in tensors.items():
        raw = array.tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + len(raw)]}
        offset += len(raw)
        body += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + body)


def to_f32(bf16):
    return (bf16.astype(np.uint32) << 16).view(np.float32)


def llama_cpp_logits(path, ids):
    from llama_cpp import GGML_TYPE_F32, Llama

    llm = Llama(str(path), n_ctx=512, n_batch=512, n_threads=2, logits_all=True, verbose=False, type_k=GGML_TYPE_F32,
                type_v=GGML_TYPE_F32, flash_attn=False)
    llm.eval(ids.tolist())
    return np.array(llm.scores[: len(ids)], np.float32)
