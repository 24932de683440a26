#!/usr/bin/env python3
"""Writes tests/data/tokenizer: what the Rust `tokenizers` package and llama.cpp make of the test strings.

usage: make_tokenizer_goldens.py strings            the test strings, from a fixed seed
       make_tokenizer_goldens.py tiny               small trained tokenizers and their goldens (tiny_tokenizers.py)
       make_tokenizer_goldens.py real FIXTURES      goldens of FIXTURES/tokenizers/*/tokenizer.json
       make_tokenizer_goldens.py gguf NAME FILE     goldens of a GGUF's tokenizer, from llama-cpp-python

A golden holds one hash (32-bit FNV-1a of the little-endian int32 ids, or of the UTF-8 bytes) for each string, and the
whole id list of every 24th string of the tiny ones. Id sequences to decode come from a generator that the test repeats.
Needs: pip install tokenizers==0.23.* (and llama-cpp-python for `gguf`).
"""
import json
import os
import random
import struct
import sys

from tokenizers import Tokenizer

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tests", "data", "tokenizer")
MASK = (1 << 64) - 1


def fnv(data):
    value = 0x811C9DC5
    for byte in data:
        value = ((value ^ byte) * 0x01000193) & 0xFFFFFFFF
    return f"{value:08x}"


def hash_ids(ids):
    return fnv(struct.pack(f"<{len(ids)}i", *ids))


class SplitMix:
    """The random numbers that tests/text/tokenizer_testing.h repeats."""

    def __init__(self, seed):
        self.state = seed

    def below(self, limit):
        self.state = (self.state + 0x9E3779B97F4A7C15) & MASK
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
        return (z ^ (z >> 31)) % limit


def id_sequences(vocab_size, count):
    r = SplitMix(vocab_size)
    out = []
    for _ in range(count):
        length = 1 + r.below(24)
        out.append([r.below(min(vocab_size, 400)) if r.below(4) == 0 else r.below(vocab_size) for _ in range(length)])
    return out


def long_texts():
    r = SplitMix(7)
    return ["a" * 100000, "".join(chr(97 + r.below(26)) for _ in range(100000)),
            "".join(chr(0x4E00 + r.below(8000)) for _ in range(33000)), " " * 100000]


TOKENS = ["<|im_start|>", "<|im_end|>", "<bos>", "<eos>", "<|endoftext|>", "<think>", "</think>", "<|begin_of_text|>",
          "<start_of_turn>", "<unused5>", "<table>", "▁▁", "<｜fim▁hole｜>", "<｜begin▁of▁sentence｜>", "<|return|>",
          "<0x41>", "<|eot_id|>", "<s>", "</s>", "<unk>", "[MASK]", "[CLS]", "word", "Ångström", "ﬁx"]
HAND = [
    "", " ", "  ", "\n", "\n\n\n", " \n", "\n ", "a", "Hello  world\n\n\n  I'm 12345 naïve 日本語 😀\ttab <b>x</b>", "don't DON'T donʼt I'll I'LL we've WE'VE he'd 'S 's 'ſ 'ſt 'Ll'lL x'x",
    "'", "''", "'s", " 's", "a's", "A'ſb", "\r\n", "\r\n\r\n x", "x \r\n y", "a  b   c    d", "\u00a0\u00a0a", "a\u3000\u3000b", "\t\tif x:\n\t\t\treturn 1\n", "1234567890123", "12 345 6789", "x1y22z333", "１２３４", "٠١٢٣٤٥", "½⅓²³", "Ⅷⅷ①", "!!!???...", "!@#$%^&*()_+-=[]{}|;':\",./<>?`~", "http://example.com/a/b?c=d&e=f#g", "//\n//\n/a", "foo/\n\n/bar",
    "日本語のテキスト、漢字かな交じり文。", "한국어 텍스트입니다", "ᄒᆞᆫ글 각 각", "Привет, мир!", "مرحبا بالعالم", "שָׁלוֹם עולם", "नमस्ते दुनिया क्षि", "ภาษาไทย", "e\u0301 é", "a\u0323\u0307 ạ̇", "\u0344 \u0958 \u2126 Å Å", "ﬁ ﬀ ㎏ ℌ ™", "ǅungla Ǆ ǆ", "İstanbul ıI", "ΑΣ ΟΔΟΣ ς", "ßẞ", "👩‍👩‍👧‍👦", "👍🏽👍🏿", "🇩🇪🇫🇷", "❤️ ☕︎", "a\u200db\u200cc\u200bd\ufeffe", "\ufffd\ufffe\uffff", "\u0000\u0001\u001f\u007f\u0080\u009f", "\u180e a\u180eb", "\u2028\u2029\u0085", "CamelCaseHTTPServerXMLhttpRequest", "snake_case_name __init__", "ALLCAPS lower Title", "ÀÉÎõü ÑANDÚ", "A\u0301B\u0301c\u0301", "\u0301abc", " \u0301abc", "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<bos><start_of_turn>user\nHi<end_of_turn>\n", "a<think> b </think>c", "word words sword  word\nword.word_word wordé", " [MASK] [MASK]  x [MASK]\n\n[CLS] y", "[MASK][MASK] [CLS][CLS]", "<s> a </s> b<s>", "<s></s>", "<unk>q<unk>", "Ångström A\u030angstro\u0308m ångström ﬁx fix FIX", "<0x41><0x0A><0xFF>", "▁a▁▁b ▁ c", "a▁b", "Ġhello Ċ", "\u0120\u010a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "ababababababababababababab" * 4, "the the the The THE", "     leading", "trailing     ", "\n\n  \n\n  x", "\U0001f600" * 30, "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛", "𐐷𐐨 𐐀", "\U000e0041\U000e007f", "\U0010fffd\U0010ffff", "𠮷野家 𰀀 𱍐", "\u0897\u1c89\u1c8a\ua7cb\ua7da", "\U00016d40\U00016d41 \U0001cc00\U0001ccf0", "\U00011de0\U00016ff4",
]
POOLS = ["abcdefghij XYZ", "0123456789", "  \t\n\r\u00a0\u3000\u2003\u0085\x0b\x0c\u2028", "'s'T're'VE'm'LL'd'ſ'ſ",
         "日本語中文한국어カタカナひらがな", "مرحبا שלום", "éèüñçåßœÆŁ", "\u0301\u0300\u0323\u0327\u0345\u0591\u05b0\u093c\u3099\u1dc0",
         "🙂👩\u200d👩\u200d👧\u200d👦👍🏽🇩🇪❤️☕\u200d\ufe0f", "!?.,;:-_/\\()[]{}<>#@&%$*+=~^|`\"", "\x00\x01\x7f\x1b\u200b\u200c\u180e\ufeff\u2060",
         "ΑΒΓαβγςσДЖИджиǅᴬʰªº", "१२३٤٥①②½²³Ⅷ", "▁▁ ▁Ġ", "각ᄀ가ᅡᆨ"]


def make_strings():
    r = random.Random(2024)
    out = list(HAND) + TOKENS
    for start in range(0, 0x32400, 0x80):  # every block, assigned or not
        chars = [c for c in [start, start + 0x7F] + [r.randrange(start, start + 0x80) for _ in range(8)]
                 if not 0xD800 <= c < 0xE000]
        if chars:
            out.append("".join(r.choice(["", "", " ", "a", "1", "'", "\n"]) + chr(c) for c in chars))
    for start in range(0x32400, 0x110000, 0x2000):
        out.append("".join(r.choice(["", " ", "b"]) + chr(r.randrange(start, start + 0x2000)) for _ in range(6)))
    for _ in range(900):
        text = ""
        for _ in range(r.randrange(1, 24)):
            kind = r.random()
            if kind < 0.12:
                text += r.choice(TOKENS)
            elif kind < 0.3:
                text += "".join(r.choice("etaoinshrdlucmfwypvbgkjqxz") for _ in range(r.randrange(1, 9)))
                text += r.choice([" ", "", "  ", "\n"])
            elif kind < 0.4:
                c = r.choice([r.randrange(0x3000), r.randrange(0x10000), r.randrange(0x10000, 0x20000)])
                text += chr(c) if not 0xD800 <= c < 0xE000 else "A"
            else:
                pool = r.choice(POOLS)
                text += "".join(r.choice(pool) for _ in range(r.randrange(1, 6)))
        out.append(text)
    return out


def write(name, value):
    path = os.path.join(OUT, name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as out:
        json.dump(value, out, ensure_ascii=False, separators=(",", ":"))
        out.write("\n")
    print(f"{path}: {os.path.getsize(path)} bytes", file=sys.stderr)


def read_strings():
    with open(os.path.join(OUT, "strings.jsonl"), encoding="utf-8") as lines:
        return [json.loads(line) for line in lines.read().split("\n") if line]


def golden(tokenizer, strings, keep_ids):
    result = {"vocab_size": tokenizer.get_vocab_size()}
    for key, plain in (("encode", False), ("encode_plain", True)):
        tokenizer.encode_special_tokens = plain
        ids = [tokenizer.encode(s, add_special_tokens=not plain).ids for s in strings]
        result[key] = "".join(hash_ids(i) for i in ids)
        if keep_ids and not plain:
            result["ids"] = ids[::24]
    tokenizer.encode_special_tokens = False
    result["long"] = "".join(hash_ids(tokenizer.encode(s).ids) for s in long_texts())
    sequences = id_sequences(result["vocab_size"], 1000)
    for key, skip in (("decode", False), ("decode_skip", True)):
        result[key] = "".join(fnv(tokenizer.decode(i, skip_special_tokens=skip).encode()) for i in sequences)
    return result


def gguf(name, path):
    from llama_cpp import Llama
    model = Llama(path, vocab_only=True, verbose=False)
    size = model.n_vocab()
    # Where a byte has no token at all (SmolLM2 lacks some that begin unassigned planes), llama.cpp keeps the hole and the
    # Rust package closes it; the model was trained with the latter, so such strings, and NUL, are not compared. Nor is
    # "</s>": llama.cpp makes a control token of it whatever its type (in Gemma it is an HTML tag, user-defined).
    vocab = {model.detokenize([i], special=True) for i in range(size)}
    strings, skipped = read_strings(), []
    result = {"vocab_size": size}
    for key, special in (("encode", True), ("encode_plain", False)):
        hashes = []
        for index, text in enumerate(strings):
            data = text.encode()
            if not data or 0 in data or b"</s>" in data or any(bytes([b]) not in vocab for b in data):
                skipped.append(index)
                hashes.append("00000000")
                continue
            hashes.append(hash_ids(model.tokenize(data, add_bos=special, special=special)))
        result[key] = "".join(hashes)
    r = SplitMix(size)
    ids = [r.below(size) for _ in range(3000)]
    pieces = [model.detokenize([i], special=True) for i in ids]  # empty where the binding's 32 bytes are too few
    result["pieces"] = "".join(fnv(piece) if piece else "00000000" for piece in pieces)
    print(f"{name}: {len(set(skipped))} strings skipped", file=sys.stderr)
    write(f"gguf/{name}.golden.json", result)


def main():
    mode = sys.argv[1] if len(sys.argv) > 1 else ""
    if mode == "strings":
        os.makedirs(OUT, exist_ok=True)
        with open(os.path.join(OUT, "strings.jsonl"), "w", encoding="utf-8") as out:
            for text in make_strings():
                out.write(json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f").replace("\u0085", "\\u0085")
                          .replace("\u2028", "\\u2028").replace("\u2029", "\\u2029") + "\n")
    elif mode == "tiny":
        import tiny_tokenizers
        for name, text in tiny_tokenizers.build():
            os.makedirs(os.path.join(OUT, "tiny"), exist_ok=True)
            with open(os.path.join(OUT, "tiny", f"{name}.json"), "w", encoding="utf-8") as out:
                out.write(text)
            write(f"tiny/{name}.golden.json", golden(Tokenizer.from_str(text), read_strings(), True))
    elif mode == "real" and len(sys.argv) == 3:
        folder = os.path.join(sys.argv[2], "tokenizers")
        for name in sorted(os.listdir(folder)):
            tokenizer = Tokenizer.from_file(os.path.join(folder, name, "tokenizer.json"))
            write(f"real/{name}.golden.json", golden(tokenizer, read_strings(), False))
    elif mode == "gguf" and len(sys.argv) == 4:
        gguf(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
