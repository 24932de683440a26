"""Small tokenizers, trained on a few sentences, that between them use every component Galvani implements."""
import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

TEXT = [
    "The quick brown fox jumps over the lazy dog, and the dog doesn't mind; it's used to that by now.",
    "In the beginning there were 12 words, then 1234 words, and later 100,000 words in the corpus!",
    "def main():\n    for i in range(10):\n        print(i)\n\n    return 0\n",
    "La naïve élève mange une crêpe à Noël. Der Fluß fließt über die Brücke. Ångström målte det.",
    "日本語のテキストと漢字。 한국어 문장입니다. Привет, мир! नमस्ते दुनिया। مرحبا بالعالم 🙂👍🏽",
    "They're sure I'll say we've seen what she'd done. WORD Word word words HTTPServer camelCase XMLHttp",
] * 3

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
O200K = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
         r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK = [r"\p{N}{1,3}", "[一-龥぀-ゟ゠-ヿ]+",
            "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
            "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"]
BYTES = pre_tokenizers.ByteLevel.alphabet()


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def raw_bytes():
    return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def train(pre_tokenizer, normalizer=None, size=420, alphabet=(), special=(), **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if normalizer:
        tokenizer.normalizer = normalizer
    if pre_tokenizer:
        tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=sorted(alphabet), special_tokens=list(special),
                                  show_progress=False)
    tokenizer.train_from_iterator(TEXT, trainer)
    return tokenizer


def with_bytes(tokenizer, missing=()):
    """Adds the <0xXX> tokens to the model's vocabulary, and turns byte fallback on."""
    state = json.loads(tokenizer.to_str())
    vocab = state["model"]["vocab"]
    for byte in range(256):
        if byte not in missing:
            vocab.setdefault(f"<0x{byte:02X}>", len(vocab))
    state["model"]["byte_fallback"] = True
    return Tokenizer.from_str(json.dumps(state))


def byte_level(pre, specials, normalizer=None, **model):
    tokenizer = train(pre, normalizer, alphabet=BYTES, special=specials, **model)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def ignoring_merges(tokenizer):
    """ignore_merges, and whole words in the vocabulary that no merge makes."""
    state = json.loads(tokenizer.to_str())
    state["model"]["ignore_merges"] = True
    for word in ("Ġwordswords", "beginning", "Ġsword"):
        state["model"]["vocab"].setdefault(word, len(state["model"]["vocab"]))
    return Tokenizer.from_str(json.dumps(state))


def gpt2():
    t = byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), ["<s>", "</s>", "<unk>", "[MASK]"])
    t.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0), trim_offsets=True, add_prefix_space=True)
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, rstrip=False)])
    return t


def llama3():
    specials = ["<|begin_of_text|>", "<|eot_id|>"]
    t = byte_level(pre_tokenizers.Sequence([split(LLAMA3), raw_bytes()]), specials)
    t = ignoring_merges(t)
    t.post_processor = processors.Sequence([
        processors.ByteLevel(trim_offsets=False),
        processors.TemplateProcessing("<|begin_of_text|> $A <|eot_id|>", special_tokens=[(s, i) for i, s in enumerate(specials)])])
    return t


def qwen():
    t = byte_level(pre_tokenizers.Sequence([split(QWEN2), raw_bytes()]), ["<|endoftext|>", "<|im_start|>", "<|im_end|>"],
                   normalizers.NFC())
    t.add_tokens([AddedToken("<think>", normalized=False), AddedToken("</think>", normalized=False)])
    t.post_processor = processors.ByteLevel(trim_offsets=False)
    return t


def qwen35():
    return byte_level(pre_tokenizers.Sequence([split(QWEN35), raw_bytes()]), ["<|im_start|>", "<|im_end|>"], normalizers.NFC())


def o200k():
    return byte_level(pre_tokenizers.Sequence([split(O200K), raw_bytes()]), ["<|return|>"])


def smollm():
    pre = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)])
    return byte_level(pre, ["<|endoftext|>", "<|im_start|>", "<|im_end|>"])


def deepseek():
    pre = pre_tokenizers.Sequence([split(p) for p in DEEPSEEK] + [raw_bytes()])
    t = byte_level(pre, ["<｜begin▁of▁sentence｜>"], normalizers.Sequence([]))
    t.add_tokens([AddedToken("<｜fim▁hole｜>", normalized=True)])
    return t


def gemma():
    t = with_bytes(train(pre_tokenizers.Split(" ", "merged_with_previous"), normalizers.Replace(" ", "▁"),
                         special=["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>"], unk_token="<unk>", fuse_unk=True))
    t.add_tokens([AddedToken(x, normalized=False) for x in ("\n\n", "\n\n\n", "▁▁", "<table>")])
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    t.post_processor = processors.TemplateProcessing("<bos> $A", special_tokens=[("<bos>", 2)])
    return t


def llama2():
    """Dummy prefix by normalizer, stripped again by the decoder; some bytes without a token."""
    normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    t = with_bytes(train(None, normalizer, special=["<unk>", "<s>", "</s>"], unk_token="<unk>", fuse_unk=True),
                   missing=(0xF0, 0xCC, 0x01))
    t.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    t.add_tokens([AddedToken("word", single_word=True, normalized=True)])
    t.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    return t


def metaspace(scheme, cut):
    t = train(pre_tokenizers.Metaspace(prepend_scheme=scheme, split=cut), special=["<unk>", "<s>"], unk_token="<unk>",
              fuse_unk=scheme == "first")
    t.decoder = decoders.Metaspace(prepend_scheme=scheme)
    t.add_tokens([AddedToken("[MASK]", rstrip=True, normalized=False), AddedToken("[CLS]", normalized=False)])
    return t


def folded():
    """Every text normalizer, words by Whitespace, unknown characters one by one, no decoder."""
    normalizer = normalizers.Sequence([normalizers.NFKD(), normalizers.StripAccents(), normalizers.Lowercase(), normalizers.Strip(),
                                       normalizers.Replace(Regex(r"\d+"), "#")])
    t = train(pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation()]), normalizer, size=160,
              special=["[UNK]", "[CLS]", "[SEP]"], unk_token="[UNK]")
    t.post_processor = processors.BertProcessing(("[SEP]", 2), ("[CLS]", 1))
    t.add_tokens([AddedToken("Ångström", normalized=True), AddedToken("ﬁx", normalized=True, single_word=True),
                  AddedToken("word", single_word=True, normalized=False)])
    return t


def flags():
    """All combinations of the added-token flags, under NFKC and lower case."""
    t = byte_level(raw_bytes(), ["<s>", "</s>"], normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]))
    t.add_special_tokens([AddedToken("[MASK]", lstrip=True, rstrip=True), AddedToken("[CLS]", lstrip=True), AddedToken("<|im_end|>", rstrip=True)])
    t.add_tokens([AddedToken("Word", single_word=True, normalized=True, lstrip=True), AddedToken("Ångström", normalized=True, rstrip=True),
                  AddedToken("ﬁx", normalized=True), AddedToken("the", single_word=True, normalized=False), AddedToken("  ", normalized=False)])
    return t


def splits(behavior, invert):
    """One split behaviour through the regular-expression fallback."""
    pre = pre_tokenizers.Sequence([split(r"\w+|\s(?=\S)", behavior, invert), pre_tokenizers.Punctuation("contiguous"),
                                   pre_tokenizers.Digits(individual_digits=False), raw_bytes()])
    return byte_level(pre, ["<s>"])


def characters():
    pre = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.CharDelimiterSplit("e"), pre_tokenizers.BertPreTokenizer(),
                                   split("(?i:the|a+)(?=b)|^x|(?<!o)n", "merged_with_next")])
    t = train(pre, normalizers.NFD(), size=200, special=["<unk>"], unk_token="<unk>")
    t.decoder = decoders.Sequence([decoders.Strip("a", 1, 0), decoders.Replace("th", "TH"), decoders.Fuse(), decoders.Strip("o", 1, 0)])
    return t


def build():
    makers = {
        "gpt2": gpt2, "llama3": llama3, "qwen": qwen, "qwen35": qwen35, "o200k": o200k, "smollm": smollm, "deepseek": deepseek,
        "gemma": gemma, "llama2": llama2, "metaspace_always": lambda: metaspace("always", True),
        "metaspace_first": lambda: metaspace("first", True), "metaspace_never": lambda: metaspace("never", False),
        "folded": folded, "flags": flags, "split_removed": lambda: splits("removed", False),
        "split_previous": lambda: splits("merged_with_previous", True), "split_next": lambda: splits("merged_with_next", False),
        "split_contiguous": lambda: splits("contiguous", True), "characters": characters,
    }
    for name, maker in makers.items():
        state = json.loads(maker().to_str())
        if "merges" in state["model"] and name in ("gpt2", "qwen"):  # the older spelling of merges
            state["model"]["merges"] = [" ".join(m) for m in state["model"]["merges"]]
        yield name, json.dumps(state, ensure_ascii=False, separators=(",", ":")) + "\n"
