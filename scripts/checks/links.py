"""Relative links of every Markdown file lead to a file, and their anchors to a heading.

usage: links.py [ROOT]
"""
import os
import re
import sys

import common

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)[^)]*\)")


def anchors(text):
    """GitHub's anchors of the headings in `text`."""
    for heading in re.findall(r"^#+\s+(.*)$", text, re.M):
        yield re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


def check_file(path):
    text = re.sub(r"```.*?```", lambda m: "\n" * m.group(0).count("\n"), common.read(path), flags=re.S)
    text = re.sub(r"`[^`\n]*`", "", text)
    for match in LINK.finditer(text):
        target = match.group(1)
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        line = text.count("\n", 0, match.start()) + 1
        destination = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        if not os.path.exists(destination):
            yield f"{path}:{line}: {target} does not exist"
        elif anchor and destination.endswith(".md") and anchor not in anchors(common.read(destination)):
            yield f"{path}:{line}: {destination} has no heading for #{anchor}"


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else ".")
    files = common.tracked(".md")
    common.finish([p for f in files for p in check_file(f)], f"the links of {len(files)} Markdown files")


if __name__ == "__main__":
    main()
