"""Small valid inputs for the fuzzers to start from: make_seeds.py FOLDER writes FOLDER/<fuzzer>/*.

Handmade ones reach every branch of a format in a few hundred bytes; text inputs come from tests/data as well.
"""
import json
import os
import struct
import sys

DATA = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "data")
LARGEST = 32768  # a bigger seed slows each run more than it helps


def safetensors(tensors, metadata=None):
    """tensors: (name, dtype, shape, bytes)."""
    header, data = ({"__metadata__": metadata} if metadata else {}), b""
    for name, dtype, shape, content in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(content)]}
        data += content
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def text(value):
    value = value.encode()
    return struct.pack("<Q", len(value)) + value


# GGUF's value types: number, and how to write one value.
GGUF = {"u8": (0, "<B"), "i8": (1, "<b"), "u16": (2, "<H"), "i16": (3, "<h"), "u32": (4, "<I"), "i32": (5, "<i"),
        "f32": (6, "<f"), "bool": (7, "<B"), "u64": (10, "<Q"), "i64": (11, "<q"), "f64": (12, "<d")}


def gguf_value(kind, value):
    if kind == "string":
        return struct.pack("<I", 8) + text(value)
    if kind.startswith("["):
        inner = kind[1:]
        items = b"".join(gguf_value(inner, v)[4:] for v in value)
        return struct.pack("<IIQ", 9, 8 if inner == "string" else GGUF[inner][0], len(value)) + items
    number, code = GGUF[kind]
    return struct.pack("<I", number) + struct.pack(code, value)


def gguf(values, tensors, version=3, alignment=32):
    """values: (key, kind, value); tensors: (name, shape, type number, bytes)."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(values))
    for key, kind, value in values:
        out += text(key) + gguf_value(kind, value)
    data = b""
    for name, shape, number, content in tensors:
        out += text(name) + struct.pack("<I", len(shape)) + struct.pack(f"<{len(shape)}Q", *shape)
        out += struct.pack("<IQ", number, len(data))
        data += content + bytes(-len(content) % alignment)
    return out + bytes(-len(out) % alignment) + data


def gguf_model(version=3):
    values = [("general.architecture", "string", "llama"), ("general.alignment", "u32", 32),
              ("general.name", "string", "seed"), ("llama.block_count", "u32", 1), ("llama.context_length", "u32", 64),
              ("llama.embedding_length", "u32", 32), ("llama.feed_forward_length", "u32", 64),
              ("llama.attention.head_count", "u32", 2), ("llama.attention.head_count_kv", "u32", 1),
              ("llama.attention.layer_norm_rms_epsilon", "f32", 1e-5), ("llama.rope.freq_base", "f32", 10000.0),
              ("tokenizer.ggml.model", "string", "gpt2"), ("tokenizer.ggml.pre", "string", "smollm"),
              ("tokenizer.ggml.tokens", "[string", ["<s>", "</s>", "a", "b", "ab", "\u0120"]),
              ("tokenizer.ggml.token_type", "[i32", [3, 3, 1, 1, 1, 1]), ("tokenizer.ggml.merges", "[string", ["a b"]),
              ("tokenizer.ggml.scores", "[f32", [0.0, 0.0, -1.0, -2.0, -3.0, -4.0]),
              ("tokenizer.ggml.bos_token_id", "u32", 0), ("tokenizer.ggml.eos_token_id", "u32", 1),
              ("tokenizer.ggml.add_bos_token", "bool", 1),
              ("tokenizer.chat_template", "string", "{% for m in messages %}{{ m.content }}{% endfor %}")]
    tensors = [("token_embd.weight", [32, 6], 8, bytes(34 * 6)), ("output_norm.weight", [32], 0, bytes(128)),
               ("blk.0.attn_q.weight", [32, 32], 2, bytes(18 * 32)), ("blk.0.attn_k.weight", [32, 16], 3, bytes(20 * 16)),
               ("blk.0.ffn_up.weight", [256, 2], 12, bytes(144 * 2)), ("blk.0.ffn_down.weight", [32, 4], 1, bytes(256))]
    return gguf(values, tensors, version)


def tokenizer(model, **parts):
    special = {"id": 0, "content": "<s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
               "special": True}
    return json.dumps({"version": "1.0", "added_tokens": [special], "normalizer": None, "pre_tokenizer": None,
                       "post_processor": None, "decoder": None, "model": model, **parts}).encode()


def tokenizers():
    vocab = {"<s>": 0, "a": 1, "b": 2, "ab": 3, "\u0120": 4, "\u2581": 5, "<0x41>": 6, "\u2581a": 7}
    bpe = {"type": "BPE", "vocab": vocab, "merges": ["a b"], "byte_fallback": True, "fuse_unk": True, "unk_token": None}
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    split = {"type": "Split", "pattern": {"Regex": "\\p{N}{1,3}|\\s+"}, "behavior": "Isolated", "invert": False}
    replace = {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}
    yield tokenizer(bpe, pre_tokenizer={"type": "Sequence", "pretokenizers": [split, byte_level]}, decoder=byte_level,
                    normalizer={"type": "NFC"})
    yield tokenizer({**bpe, "merges": [["a", "b"]]}, normalizer={"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"}, replace]}, decoder={"type": "Sequence", "decoders": [
            replace, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                                                         {"Sequence": {"id": "A", "type_id": 0}}], "pair": [],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}}
    yield tokenizer(bpe, pre_tokenizer={"type": "Digits", "individual_digits": True}, post_processor=template)


TEMPLATES = [
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message.content | trim }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "{%- set ns = namespace(n=0) -%}{% for m in messages if m.role != 'x' %}{% set ns.n = ns.n + loop.index0 %}"
    "{{ loop.last ~ ns.n }}{% else %}none{% endfor %}{# note #}",
    "{% macro f(a, b=2) %}{{ a * b }}{% endmacro %}{{ f(3) }}{{ tools | tojson(indent=2) }}{{ messages[1:] | length }}",
    "{% if messages is defined and messages[0].role in ['system'] %}{{ raise_exception('no') }}{% elif not x %}y{% endif %}"
    "{% filter upper %}a{% endfilter %}{{ {'a': [1, 2.5, none]}['a'][-1] }}{{ 'a,b'.split(',') | join('-') }}",
    "{% generation %}{{ strftime_now('%d %b %Y') }}{% endgeneration %}{{ range(3) | list }}{{ 7 // 2 ** 3 % 4 }}",
]


def files_of_data(accept):
    for folder, _, names in os.walk(DATA):
        for name in sorted(names):
            path = os.path.join(folder, name)
            if accept(name) and os.path.getsize(path) <= LARGEST:
                with open(path, "rb") as file:
                    yield file.read()


def seeds():
    weights = [("a.weight", "F32", [2, 2], bytes(16)), ("b.bias", "BF16", [3], bytes(6)), ("c", "U32", [0], b""),
               ("d.scales", "F16", [], bytes(2))]
    yield "fuzz_safetensors", [safetensors(weights, {"format": "pt"}), safetensors([]), safetensors(weights[:1])]
    yield "fuzz_gguf", [gguf_model(), gguf_model(2), gguf([], [])]
    text = "Hello  w\u00f6rld 123\n<s> [MASK] don't \u65e5\u672c\u8a9e \U0001f642\u0301".encode()
    folder = os.path.join(DATA, "tokenizer", "tiny")
    tiny = [name for name in sorted(os.listdir(folder)) if not name.endswith(".golden.json")]
    files = [open(os.path.join(folder, name), "rb").read() for name in tiny]
    yield "fuzz_tokenizer", [text] + [content + b"\0" + text for content in [*tokenizers(), *files]]
    yield "fuzz_template", [t.encode() for t in TEMPLATES] + list(files_of_data(lambda n: n.endswith((".jinja", ".j2"))))
    yield "fuzz_hf_config", list(files_of_data(lambda n: n == "config.json"))


def main():
    for fuzzer, contents in seeds():
        folder = os.path.join(sys.argv[1], fuzzer)
        os.makedirs(folder, exist_ok=True)
        for number, content in enumerate(contents):
            with open(os.path.join(folder, f"seed{number:03}"), "wb") as file:
                file.write(content)


if __name__ == "__main__":
    main()
