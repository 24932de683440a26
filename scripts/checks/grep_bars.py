"""Words that may stand only in certain folders. Comments and strings do not count for the code bars.

usage: grep_bars.py [ROOT]
"""
import os
import re
import sys

import common

PROGRAMS = r"^(src/cli/|tests/|benchmarks/)"
# (what is looked for, regular expression, files it concerns, files it may stand in, what to do instead)
CODE_BARS = [
    ("raw kernel launch", r"<<<", r"^(src|include|tests|benchmarks)/", r"^$",
     "launch through the checked launch() wrapper, which reports the error by kernel name"),
    ("getenv", r"\b(secure_)?getenv\s*\(", r"^(src|include)/", r"^src/(cli/|core/env\.)",
     "parse the environment once at start, in src/cli or core/env, and pass a value on"),
    ("printing or ending the process in a library",
     r"(?<![\w.>])(printf|fprintf|vprintf|puts|putchar|abort|exit|_exit|_Exit|quick_exit|std::terminate)\s*\("
     r"|\bstd::(cout|cerr|clog)\b",
     r"^(src|include)/", r"^src/cli/", "return a Result or Status; programs print, libraries do not"),
    ("architecture number", r"\bcc(_major|_minor)?\s*(>=|<=|==|!=|>|<)\s*\d|\b__CUDA_ARCH__\b"
     r"|\b(compute_)?(major|capability)\s*(>=|<=|==|>|<)\s*\d",
     r"^(src|include)/", r"^src/device/|_plan\.h$|\.cuh$",
     "ask DeviceCaps for the feature; features are derived once, in src/device"),
    ("CUDA header in a CPU file", r"#\s*include\s*(<cuda|\"cuda(?!/)|[<\"](cublas|cudnn|nvtx|nvml|nvrtc|nccl|cub/|cute/|thrust/))",
     r"\.(h|cpp)$", r"^src/cuda/.*\.cpp$|^src/cuda/check\.h$|^tests/emulated_gpu/",
     "only src/cuda/*.cpp, *.cu and *.cuh may see CUDA; the headers of src/cuda declare what they need"),
    ("assembly", r"\basm\b\s*(volatile\s*)?\(", r"\.(cuh|cu)$",
     r"^src/kernels/common/|^src/kernels/attention/attention_wgmma_mma\.cuh$|^tests/",
     "one function an instruction in src/kernels/common/, and its like in tests/emulated_gpu/include/"),
    ("unfinished work", None, r"", r"^$", "finish it, or file an issue"),
    ("header too heavy for a header", r"#\s*include\s*<(iostream|regex)>", r"^(src|include)/.*\.h$", r"^$",
     "include it in the .cpp"),
    ("std::regex", r"\bstd::regex\b", r"^(src|include)/", r"^$",
     "it recurses on its input and overflows the stack; use PCRE2 or write the scan"),
    ("GTEST_SKIP without a reason", r"GTEST_SKIP\s*\(\s*\)\s*;", r"^tests/", r"^$", 'write GTEST_SKIP() << "why"'),
    ("disabled test", r"\bDISABLED_\w+", r"^tests/", r"^$", "skip at run time with a reason, or delete it"),
]
UNFINISHED = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
# Put together from pieces, so that this file does not contain them itself.
FORBIDDEN = re.compile("|".join([
    r"(?<![\w./])/" + r"work/", r"(?<![\w./])/" + r"root/(?!\.cache)", r"\bfiles\.python" + r"hosted\.org", r"\bpy" + r"pi\.org",
    r"\bregistry\." + r"npmjs", r"\bdeb\." + r"debian\.org", r"\bcrates\." + r"io\b", r"\bproxy\." + r"golang\.org"]))
TEXT = (".h", ".cpp", ".cu", ".cuh", ".py", ".md", ".txt", ".cmake", ".json", ".sh", "Makefile", ".jinja")
DATA = "tests/data/"  # recorded from other projects; their words are theirs


def lines_matching(pattern, text):
    for match in re.finditer(pattern, text):
        yield text.count("\n", 0, match.start()) + 1, match.group(0).strip()


def check_code(path):
    raw = common.read(path)
    # Includes live in quotes, so the include bar reads text that keeps its strings.
    code, with_strings = common.strip(raw), common.strip(raw, keep_strings=True)
    for name, pattern, concerned, allowed, cure in CODE_BARS:
        if not re.search(concerned, path) or re.search(allowed, path):
            continue
        if pattern is None:
            hits, shown = [(raw.count("\n", 0, m.start()) + 1, m.group(0)) for m in UNFINISHED.finditer(raw)], name
        else:
            hits, shown = lines_matching(pattern, with_strings if "include" in pattern else code), name
        for line, found in hits:
            yield f"{path}:{line}: {shown}: '{found}'; {cure}"


def check_text(path):
    for line, found in lines_matching(FORBIDDEN, common.read(path)):
        yield f"{path}:{line}: '{found}': machine paths and registry hosts do not belong into the repository"


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else ".")
    files = common.tracked()
    code = [f for f in files if f.endswith(common.CODE)]
    text = [f for f in files if not f.startswith(DATA) and
            (f.endswith(TEXT) or f.startswith(("scripts/", ".ci/")) or os.path.basename(f).startswith("."))]
    if not code or not text:
        common.finish(["no file found"], "the bars")
    problems = [p for f in code for p in check_code(f)] + [p for f in text for p in check_text(f)]
    common.finish(problems, f"{len(code)} source and {len(text)} text files, {len(CODE_BARS) + 1} bars")


if __name__ == "__main__":
    main()
