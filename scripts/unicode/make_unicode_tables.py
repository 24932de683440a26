#!/usr/bin/env python3
"""Writes src/text/unicode_data.inc: the character classes that the Rust `tokenizers` package really uses.

That package mixes four sources of Unicode data (Oniguruma for \\p{..} and \\s, the `regex` crate for \\w, Rust's std
for numeric and lower case, and an older normalisation crate), each of its own Unicode version. Token ids depend on
them, so the tables are read out of the package itself, one code point at a time, instead of from one UCD release.

usage: make_unicode_tables.py OUT.inc      (needs: pip install tokenizers==0.23.*)
"""
import sys
import unicodedata as U

import tokenizers
from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]
CHUNKS = [(a, "".join(map(chr, CODE_POINTS[a : a + 4096]))) for a in range(0, len(CODE_POINTS), 4096)]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()
FLAGS = "space word onig_word numeric punctuation nfc_active accent inert_in_normalisation newer_than_14".split()


def removed(pre_tokenizer):
    """The code points that a pre-tokenizer with behaviour "removed" takes out."""
    out = set()
    for start, text in CHUNKS:
        kept = set()
        for _, (begin, end) in pre_tokenizer.pre_tokenize_str(text):
            kept.update(range(begin, end))
        out.update(CODE_POINTS[start + i] for i in range(len(text)) if i not in kept)
    return out


def regex_class(pattern):
    return removed(pre_tokenizers.Split(Regex(pattern), "removed"))


def rust_words():
    out = set()
    for start, text in CHUNKS:
        joined = " ".join("a" + ch for ch in text)
        for _, (begin, end) in pre_tokenizers.Whitespace().pre_tokenize_str(joined):
            if end - begin == 2 and begin % 3 == 0:
                out.add(CODE_POINTS[start + begin // 3])
    return out


def rust_numeric():
    out = set()
    for start, text in CHUNKS:
        joined = "".join("a" + ch for ch in text) + "a"
        for _, (begin, end) in pre_tokenizers.Digits(True).pre_tokenize_str(joined):
            if end - begin == 1 and begin % 2 == 1:
                out.add(CODE_POINTS[start + begin // 2])
    return out


def normalisation(category):
    """(nfc_active, inert): code points that can change under NFC; those the package's older tables do not know."""
    nfc, nfd = normalizers.NFC().normalize_str, normalizers.NFD().normalize_str
    nfkd = normalizers.NFKD().normalize_str
    inert = {c for c in CODE_POINTS if U.category(chr(c)) == "Cn" and category[c] != "Cn"}
    active = set()
    marks = [chr(m) for m in (0x334, 0x3099, 0x5B0, 0x327, 0x323, 0x301, 0x345)]
    for c in CODE_POINTS:
        ch = chr(c)
        if nfkd(ch) != U.normalize("NFKD", ch) or nfd(ch) != U.normalize("NFD", ch):
            assert nfkd(ch) == ch, f"U+{c:04X} decomposes in neither table's way"
            inert.add(c)
        if U.combining(ch) or category[c][0] == "M":
            forms = [f for m in marks for f in ("a" + ch + m, "a" + m + ch)]
            if any(nfd(f) != U.normalize("NFD", f) for f in forms):
                assert all(nfd(f) == "a" + U.normalize("NFD", f[1:]) or ch in nfd(f) for f in forms)
                assert nfd("a" + ch + "\u0334") == "a" + ch + "\u0334", f"U+{c:04X} reorders in another way"
                inert.add(c)
        if U.combining(ch) or nfc(ch) != ch or not U.is_normalized("NFC", ch):
            active.add(c)
        parts = U.decomposition(ch).split()
        if len(parts) == 2 and not parts[0].startswith("<"):
            first, second = (int(p, 16) for p in parts)
            if U.normalize("NFC", ch) == ch:
                active.add(second)
                if nfc(chr(first) + chr(second)) != ch:
                    inert.add(second)
    active.update(range(0x1161, 0x1176))
    active.update(range(0x11A8, 0x11C3))
    return active - inert, inert


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    assert U.unidata_version == "14.0.0", f"run with a Python whose unicodedata is 14.0.0, not {U.unidata_version}"
    category = {}
    for name in CATEGORIES:
        if name != "Cs":
            category.update(dict.fromkeys(regex_class(r"\p{%s}" % name), name))
    assert len(category) == len(CODE_POINTS)
    strip, lower = normalizers.StripAccents().normalize_str, normalizers.Lowercase().normalize_str
    active, inert = normalisation(category)
    sets = dict(
        space=regex_class(r"\s"),
        word=rust_words(),
        onig_word=regex_class(r"\w"),
        numeric=rust_numeric(),
        punctuation=removed(pre_tokenizers.Punctuation("removed")),
        nfc_active=active,
        accent={c for c in CODE_POINTS if strip(chr(c)) == ""},
        inert_in_normalisation=inert,
        newer_than_14={c for c in CODE_POINTS if U.category(chr(c)) != category[c]},
    )
    assert sets["space"] == removed(pre_tokenizers.WhitespaceSplit())
    for name, members in sets.items():
        print(f"{name}: {len(members)} code points", file=sys.stderr)
    ranges, last = [], None
    for c in range(0x110000):
        value = CATEGORIES.index(category.get(c, "Cs"))
        for bit, name in enumerate(FLAGS):
            value |= (c in sets[name]) << (5 + bit)
        if value != last:
            ranges.append(f"{{0x{c:X},0x{value:X}}},")
            last = value
    mapped = [(c, lower(chr(c))) for c in CODE_POINTS if lower(chr(c)) != chr(c) and c != 0x130]
    assert lower("\u0130") == "i\u0307" and all(len(text) == 1 for _, text in mapped)
    pairs = [f"{{0x{c:X},0x{ord(text):X}}}," for c, text in mapped]

    def wrap(items):
        lines, line = [], ""
        for item in items:
            if len(line) + len(item) > 118:
                lines.append(line)
                line = ""
            line += item
        return "\n".join(lines + [line])

    with open(sys.argv[1], "w", encoding="ascii") as out:
        out.write(
            f"// Generated by scripts/unicode/make_unicode_tables.py from tokenizers {tokenizers.__version__}; do not edit.\n"
            "// clang-format off\n"
            f"// Value: bits 0-4 general category in the order {' '.join(CATEGORIES)};\n"
            f"// from bit 5 on: {', '.join(FLAGS)}.\n"
            "constexpr ClassRange kClassRanges[] = {\n" + wrap(ranges) + "\n};\n"
            "constexpr LowerCase kLowerCase[] = {\n" + wrap(pairs) + "\n};\n"
            "// clang-format on\n"
        )


if __name__ == "__main__":
    main()
