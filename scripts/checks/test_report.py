"""Prints what a ctest run did: failures, skips grouped by reason, ctest's own summary line, and the counts.

usage: test_report.py JUNIT.xml CTEST.log
Exit 0 when at least one test was executed, none failed and every skip gave a reason; 1 otherwise.
"""
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import defaultdict

# GoogleTest prints "FILE:LINE: Skipped", then the streamed reason, then a "[  SKIPPED ]" line.
SKIP = re.compile(r":\d+: Skipped\n(.*?)\n*\[  SKIPPED \]", re.S)


def read_cases(path):
    """Yields (name, status, output); status is passed, failed or skipped."""
    for case in ElementTree.parse(path).getroot().iter("testcase"):
        output = "".join(case.findtext("system-out") or "")
        if case.get("status") == "run":
            status = "passed"
        elif case.get("status") == "notrun" and "[  SKIPPED ]" in output:
            status = "skipped"
        elif case.get("status") == "disabled":
            status, output = "skipped", ":0: Skipped\ndisabled in its name\n[  SKIPPED ]"
        else:
            status = "failed"
            output += f"\nafter {float(case.get('time') or 0):.0f} s"  # ctest's file does not say when it was the limit
        yield case.get("name"), status, output


def report(cases, ctest_log):
    """Returns (lines, ok)."""
    lines, counts, skips, silent, failed = [], defaultdict(int), defaultdict(list), [], []
    for name, status, output in cases:
        counts[status] += 1
        if status == "failed":
            failed.append(name)
            lines += [f"---- failed: {name}"] + ["  | " + line for line in output.splitlines()[-25:]]
        if status == "skipped":
            match = SKIP.search(output)
            reason = " ".join(match.group(1).split()) if match else ""
            (skips[reason] if reason else silent).append(name)
    if skips:
        lines.append(f"Skipped, with the reason each test gave ({counts['skipped']}):")
        for reason, names in sorted(skips.items(), key=lambda item: -len(item[1])):
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
            lines.append(f"  {len(names)} x {reason}  [{shown}]")
    lines += [f"---- skipped without saying why: {name}" for name in silent]
    lines += re.findall(r"^\d+% tests passed.*$", ctest_log, re.M)
    executed = counts["passed"] + counts["failed"]
    if executed == 0:
        lines.append("No test was executed, which counts as a failure")
    # The last line goes into every verdict above, which is often all that is left of a run: it has the names.
    names = ", ".join(failed[:5]) + (f" and {len(failed) - 5} more" if len(failed) > 5 else "")
    named = f" ({names})" if failed else ""
    lines.append(f"{counts['passed']} passed, {counts['failed']} failed{named}, {counts['skipped']} skipped")
    return lines, executed > 0 and counts["failed"] == 0 and not silent


def main():
    junit, log = sys.argv[1:3]
    try:
        cases = list(read_cases(junit))
    except (OSError, ElementTree.ParseError) as error:
        print(f"ctest left no readable report ({error})\n0 passed, 0 failed, 0 skipped")
        return 1
    with open(log, encoding="utf-8", errors="replace") as file:
        lines, ok = report(cases, file.read())
    print("\n".join(lines))
    return 0 if ok else 1


if __name__ == "__main__":
    sys.exit(main())
