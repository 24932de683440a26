"""File lengths: aim below 300 lines, a reason above 600 (large_files.txt, else a warning), the stop at 1,000.

usage: file_sizes.py [ROOT]
"""
import os
import sys

import common

WARN, STOP = 600, 1000
REASONS = "scripts/checks/large_files.txt"


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else ".")
    reasons = {}
    if os.path.exists(REASONS):
        for line in common.read(REASONS).splitlines():
            if line.strip() and not line.startswith("#"):
                path, _, reason = line.partition(" ")
                reasons[path] = reason.strip()
    problems = [f"{REASONS}: {path} has no reason beside it" for path, reason in reasons.items() if not reason]
    problems += [f"{REASONS}: {path} does not exist any more" for path in reasons if not os.path.exists(path)]
    files = [f for f in common.tracked(*common.CODE, ".py") if not f.startswith("tests/data/")]
    for path in files:
        lines = common.read(path).count("\n")
        if path in reasons:
            continue
        if lines > STOP:
            problems.append(f"{path}: {lines} lines, above the stop of {STOP}; split it")
        elif lines > WARN:
            print(f"warning: {path}: {lines} lines, above {WARN}; split it, or give the reason in {REASONS}")
    common.finish(problems, f"the lengths of {len(files)} files ({len(reasons)} long ones with a reason)")


if __name__ == "__main__":
    main()
