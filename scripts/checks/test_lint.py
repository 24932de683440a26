"""Tests that cannot fail for a good reason: no assertion at all, or assertions about shapes only.

usage: test_lint.py [ROOT]
A test that calls a helper whose name starts with expect, check, verify, assert, compare or require is taken at its word.
"""
import os
import re
import sys

import common

HEAD = re.compile(r"^(TEST|TEST_F|TEST_P|TYPED_TEST)\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)\s*\{", re.M)
ASSERTION = re.compile(r"\b(EXPECT|ASSERT)_\w+\s*\(|\bADD_FAILURE\b|\bFAIL\s*\(\)|\bGTEST_FAIL")
HELPER = re.compile(r"\b(?!EXPECT_|ASSERT_)(expect|check|verify|assert|compare|require)\w*\s*(<[^;]*?>)?\s*\(", re.I)
SHAPE = re.compile(r"\bshape\b|\bshape\s*\(|\brank\s*\(|\.ndim\b|\bdims\b")


def body_of(text, start):
    """The text between the brace at `start` - 1 and its partner."""
    depth = 1
    for i in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[i], 0)
        if depth == 0:
            return text[start:i]
    return text[start:]


def statements(body, start):
    """The assertion that begins at `start`, up to its semicolon."""
    end = body.find(";", start)
    return body[start:end if end >= 0 else len(body)]


def check_file(path):
    text = common.strip(common.read(path))
    problems, count = [], 0
    for head in HEAD.finditer(text):
        count += 1
        body = body_of(text, head.end())
        where = f"{path}:{text.count(chr(10), 0, head.start()) + 1}: {head.group(2)}.{head.group(3)}"
        found = [statements(body, match.start()) for match in ASSERTION.finditer(body)]
        # ASSERT_TRUE(result) << error is a precondition, not what a test is about.
        substance = [a for a in found if not re.match(r"ASSERT_(TRUE|NE)\s*\(\s*\w+(\.has_value\(\))?\s*\)", a)]
        helper = HELPER.search(body)
        if not found and not helper:
            problems.append(f"{where} asserts nothing")
        elif substance and not helper and all(SHAPE.search(a) for a in substance) and "shape" not in path:
            problems.append(f"{where} looks only at shapes; compare values")
    return problems, count


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else ".")
    problems, tests = [], 0
    for path in common.tracked("_test.cpp"):
        found, count = check_file(path)
        problems += found
        tests += count
    if tests == 0:
        problems.append("no test found")
    common.finish(problems, f"{tests} tests")


if __name__ == "__main__":
    main()
