#!/usr/bin/env python3
"""What llama.cpp computes for a GGUF model, as a small JSON file for tests/models/gguf_models_test.cpp.

  make_llama_cpp_goldens.py MODEL.gguf OUT.json

Needs the Python package llama-cpp-python. llama.cpp rounds activations to 8 bits, so the test compares with margins.
Per position of a fixed text: the best token, its margin over the second, and the log-probability of the next token.
For each prompt: the greedy continuation with its margins.
"""
import json
import sys

import numpy as np
from llama_cpp import Llama

# Written for this purpose; plain English, some numbers, some code.
TEXT = """The harbour town woke slowly. Fishing boats came back before dawn, and by seven the market on the quay was loud with
prices: 4 for a kilo of mussels, 12 for sole, 30 for a crate of mackerel that nobody wanted. Anna, who kept the accounts of
the cooperative, wrote every sale into a blue notebook and copied the totals into a spreadsheet at night. She had learned
from her grandfather that a number without its date is a rumour.

In the afternoon the ferry from the island brought students with bicycles. They asked where the old lighthouse was, whether
one could swim from the rocks, and if the bakery still sold bread with seeds. "The lighthouse is closed on Mondays," said
the man at the ticket window, "but the keeper's daughter has the key, and she is at the library until five."

The library had two rooms. One held novels and atlases; the other held the town's papers: births, marriages, ships lost,
ships built. A small computer in the corner ran a script that counted the words of each volume:

    def count_words(path):
        total = 0
        with open(path) as f:
            for line in f:
                total += len(line.split())
        return total

It was not fast, but it was right, and it printed how long it had taken. On the last page of the last volume someone had
written in pencil: measure twice, say once. The students copied the sentence and took the evening ferry home, while the
lamp of the lighthouse, lit by nobody, turned above the water as it had for a hundred and sixty years.
"""

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea, there lived",
    "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n",
    "Water boils at 100 degrees Celsius because",
]


def log_softmax(row):
    row = row.astype(np.float64)
    return row - row.max() - np.log(np.exp(row - row.max()).sum())


def best_two(row):
    order = np.argpartition(-row, 2)[:2]
    order = order[np.argsort(-row[order])]
    return int(order[0]), float(row[order[0]] - row[order[1]])


def main(model, out):
    llm = Llama(model_path=model, n_ctx=1024, n_batch=512, n_threads=2, logits_all=True, verbose=False, seed=0)
    ids = llm.tokenize(TEXT.encode(), add_bos=True, special=False)
    llm.reset()
    llm.eval(ids)
    logits = np.array(llm.scores[: len(ids)], dtype=np.float32)
    record = {"text": TEXT, "ids": ids, "best": [], "margin": [], "next_logprob": [], "prompts": []}
    for i in range(len(ids)):
        best, margin = best_two(logits[i])
        record["best"].append(best)
        record["margin"].append(round(margin, 4))
        if i + 1 < len(ids):
            record["next_logprob"].append(round(float(log_softmax(logits[i])[ids[i + 1]]), 5))
    for prompt in PROMPTS:
        prompt_ids = llm.tokenize(prompt.encode(), add_bos=True, special=False)
        llm.reset()
        llm.eval(prompt_ids)
        greedy, margins = [], []
        for _ in range(48):
            best, margin = best_two(np.array(llm.scores[llm.n_tokens - 1]))
            greedy.append(best)
            margins.append(round(margin, 4))
            llm.eval([best])
        record["prompts"].append({"text": prompt, "ids": prompt_ids, "greedy": greedy, "margin": margins})
    with open(out, "w") as f:
        json.dump(record, f, separators=(",", ":"), ensure_ascii=False)
        f.write("\n")
    print(out, len(ids), "ids, perplexity", np.exp(-np.mean(record["next_logprob"])))


main(sys.argv[1], sys.argv[2])
