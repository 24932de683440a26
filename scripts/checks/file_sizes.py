"""Lengths: files aim below 300 lines, need a reason above 600, stop at 1,000; functions aim below 60, stop at 200.

usage: file_sizes.py [ROOT]
A file in large_files.txt has given its reason; the others get a warning above the first limit and fail above the stop.
"""
import os
import re
import sys

import common

FILE_WARN, FILE_STOP = 600, 1000
FUNCTION_WARN, FUNCTION_STOP = 60, 200
REASONS = "scripts/checks/large_files.txt"
# In clang-formatted code a function opens with a line at most two levels deep, and closes at the same indentation.
OPENING = re.compile(r"^( {0,2})(?!namespace|class|struct|enum|union|extern|TEST|\}|//|#)[^ ].*\{$|^( {0,4})\S.*\) (?:const )?(?:noexcept )?(?:override )?\{$")


def functions(text):
    """Yields (line, length, head) of each function body longer than FUNCTION_WARN."""
    lines = common.strip(text, keep_strings=True).split("\n")
    skip_to = 0
    for number, line in enumerate(lines):
        if number < skip_to or not OPENING.match(line):
            continue
        head = line.strip()
        if re.match(r"(static |inline |constexpr |const )*(namespace|class|struct|enum|union|extern|template)\b", head) or \
                re.match(r"(if|for|while|switch|else|do|TEST\w*)\b", head) or " = {" in head or "= {" in head:
            continue
        closing = line[:len(line) - len(line.lstrip())] + "}"
        end = next((i for i in range(number + 1, len(lines)) if lines[i].startswith(closing)), number)
        if end - number - 1 > FUNCTION_WARN:
            yield number + 1, end - number - 1, head
        skip_to = end


def read_reasons():
    reasons = {}
    if os.path.exists(REASONS):
        for line in common.read(REASONS).splitlines():
            if line.strip() and not line.startswith("#"):
                path, _, reason = line.partition(" ")
                reasons[path] = reason.strip()
    return reasons


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else ".")
    reasons = read_reasons()
    problems = [f"{REASONS}: {path} has no reason beside it" for path, reason in reasons.items() if not reason]
    problems += [f"{REASONS}: {path} does not exist any more" for path in reasons if not os.path.exists(path)]
    files = [f for f in common.tracked(*common.CODE, ".py") if not f.startswith("tests/data/") and f not in reasons]
    for path in files:
        text = common.read(path)
        lines = text.count("\n")
        if lines > FILE_STOP:
            problems.append(f"{path}: {lines} lines, above the stop of {FILE_STOP}; split it")
        elif lines > FILE_WARN:
            print(f"warning: {path}: {lines} lines, above {FILE_WARN}; split it, or give the reason in {REASONS}")
        if path.endswith(".py") or path.startswith("tests/"):
            continue
        for line, length, head in functions(text):
            if length > FUNCTION_STOP:
                problems.append(f"{path}:{line}: {length} lines in one function, above the stop of {FUNCTION_STOP}: {head}")
            else:
                print(f"warning: {path}:{line}: {length} lines in one function, above {FUNCTION_WARN}: {head}")
    common.finish(problems, f"the lengths of {len(files)} files ({len(reasons)} long ones with a reason)")


if __name__ == "__main__":
    main()
