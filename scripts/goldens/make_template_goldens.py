#!/usr/bin/env python3
"""Writes tests/data/jinja/{cases,conversations}.json: templates rendered by jinja2 (needs jinja2 3.1).

usage: make_template_goldens.py [--fixtures DIR] [--gguf FILE]...

Templates of real models found in the fixtures folder (tokenizers/*/tokenizer_config.json) and in GGUF files (needs the
gguf package) are rendered too; only their hashes and outputs are written, since the templates are not ours to keep.
"""
import argparse
import hashlib
import json
import pathlib

import template_cases
import template_conversations
import template_environment

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "jinja"


def write(path, value):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")
    print(f"{path}: {path.stat().st_size} bytes")


def small_cases():
    templates = ["{{ " + line + " }}" for line in merged(template_cases.EXPRESSIONS)] + template_cases.TEMPLATES
    cases = []
    for template in dict.fromkeys(templates):
        result = template_environment.render(template, template_cases.CONTEXT)
        if any(mark in result.get("text", "") for mark in (" at 0x", "<class", "<TemplateReference")):
            continue  # an address or a Python class is nobody's golden
        cases.append({"template": template, **result})
    return {"now": template_environment.NOW, "context": template_cases.CONTEXT, "cases": cases}


def merged(text):
    """Lines, where an indented or closing line continues the one before."""
    out = []
    for line in text.split("\n"):
        if out and (line.startswith((" ", ")", "]")) and out[-1].startswith(("(", "[")) and not out[-1].endswith((")", "]"))):
            out[-1] += "\n" + line
        else:
            out.append(line)
    return out


def real_templates(fixtures, ggufs):
    for folder in sorted((pathlib.Path(fixtures) / "tokenizers").iterdir()) if fixtures else []:
        config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
        template = config.get("chat_template")
        if isinstance(template, str):
            tokens = {k: v["content"] if isinstance(v, dict) else v for k, v in config.items()
                      if k in ("bos_token", "eos_token") and v is not None}
            yield folder.name, template, tokens
    for path in ggufs:
        from gguf import GGUFReader

        fields = GGUFReader(path).fields
        read = lambda key: fields[key].contents() if key in fields else None
        vocabulary = read("tokenizer.ggml.tokens")
        tokens = {f"{kind}_token": vocabulary[read(f"tokenizer.ggml.{kind}_token_id")] for kind in ("bos", "eos")
                  if read(f"tokenizer.ggml.{kind}_token_id") is not None}
        template = read("tokenizer.chat_template")
        if template:
            yield pathlib.Path(path).name, template, tokens


def conversations(fixtures, ggufs):
    out = {"now": template_environment.NOW, "conversations": template_conversations.CONVERSATIONS, "templates": [], "real": []}
    env = template_environment.environment()

    def render_all(template, tokens):
        results = []
        for conversation in template_conversations.CONVERSATIONS:
            tried = [template_environment.render(template, context, env)
                     for context in template_conversations.contexts(conversation, tokens)]
            results.append(next((result for result in tried if "text" in result), tried[0]))
        return results

    for path in sorted((DATA / "templates").glob("*.jinja")):
        tokens = template_conversations.TOKENS
        out["templates"].append({"file": path.name, "tokens": tokens, "results": render_all(path.read_text(encoding="utf-8"), tokens)})
    for name, template, tokens in real_templates(fixtures, ggufs):
        out["real"].append({"name": name, "sha256": hashlib.sha256(template.encode()).hexdigest(), "tokens": tokens,
                            "results": render_all(template, tokens)})
    return out


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--fixtures")
    parser.add_argument("--gguf", action="append", default=[])
    args = parser.parse_args()
    write(DATA / "cases.json", small_cases())
    write(DATA / "conversations.json", conversations(args.fixtures, args.gguf))


if __name__ == "__main__":
    main()
