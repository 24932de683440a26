"""What the checkers share: the tracked files, and C++ text without comments and string contents."""
import re
import subprocess
import sys

CODE = (".h", ".cpp", ".cu", ".cuh")


def tracked(*suffixes):
    """Files git knows or would add (ignored ones excluded), whose name ends in one of `suffixes` (all if none)."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\0")
    deleted = set(subprocess.run(["git", "ls-files", "-z", "--deleted"], check=True, capture_output=True,
                                 text=True).stdout.split("\0"))
    return sorted({n for n in names if n and n not in deleted and (not suffixes or n.endswith(suffixes))})


def read(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


TOKEN = re.compile(
    r'R"(?P<raw>[^()\\\s]{0,16})\((?:.|\n)*?\)(?P=raw)"'  # raw string
    r'|"(?:\\.|[^"\\\n])*"'                                # string
    r"|(?<![0-9a-zA-Z_])'(?:\\.|[^'\\\n])+'"               # character; not a digit separator
    r"|//[^\n]*|/\*(?:.|\n)*?\*/")                         # comments


def strip(text, keep_strings=False):
    """The code alone: comments become blanks, strings become "", and every line keeps its number."""

    def blank(match):
        token = match.group(0)
        if token.startswith(("//", "/*")):
            return re.sub(r"[^\n]", " ", token)
        return token if keep_strings else '""' + "\n" * token.count("\n")

    return TOKEN.sub(blank, text)


def finish(problems, what):
    """Prints each problem and exits 1, or says how much was looked at and exits 0."""
    for problem in problems:
        print(problem)
    print(f"{len(problems)} problems in {what}")
    sys.exit(1 if problems else 0)
