"""Tests that cannot fail for a good reason: no assertion at all, or assertions about shapes only; and suites that need a
GPU without Cuda in their names, by which scripts/gpu-gate and scripts/test-emulated choose.

usage: test_lint.py [ROOT]
A test that calls a function or lambda which asserts, defined in its own file or in a header of tests/, asserts.
"""
import os
import re
import sys

import common

HEAD = re.compile(r"^(TEST|TEST_F|TEST_P|TYPED_TEST)\s*\(\s*(\w+)\s*,\s*(\w+)\s*\)\s*\{", re.M)
ASSERTION = re.compile(r"\b(EXPECT|ASSERT)_\w+\s*\(|\bADD_FAILURE\b|\bFAIL\s*\(\)|\bGTEST_FAIL")
# A function or lambda definition: its name, up to the brace that opens its body.
DEFINITION = re.compile(r"\b(\w+)\s*(?:=\s*\[[^\]]*\]\s*)?\([^;{}]*\)\s*(?:const\s*|noexcept\s*|->[^;{}]*)*\{")
# How a fixture skips where there is no driver.
NEEDS_GPU = re.compile(r"GTEST_SKIP\(\) << state\.message|GALVANI_NEEDS_HOPPER\(\)")
INCLUDE = re.compile(r'^#include "([^"]+)"', re.M)
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


def asserting_helpers(text, known=frozenset()):
    """Names of the functions defined in `text` that assert, themselves or through another one."""
    bodies = {}  # overloads, and calls that pass a lambda, add to the same name
    for m in DEFINITION.finditer(text):
        if m.group(1) not in ("if", "for", "while", "switch", "TEST", "TEST_F", "TEST_P", "TYPED_TEST"):
            bodies[m.group(1)] = bodies.get(m.group(1), "") + body_of(text, m.end())
    names = set(known)
    while True:
        more = {n for n, body in bodies.items() if n not in names and (ASSERTION.search(body) or calls(body, names))}
        if not more:
            return names
        names |= more


def calls(body, names):
    return any(word in names for word in re.findall(r"\b(\w+)\s*(?:<[^;()]*>\s*)?\(", body))


def needs_gpu(path, text, gpu_headers):
    return bool(NEEDS_GPU.search(text)) or any(
        header in gpu_headers for name in INCLUDE.findall(text)
        for header in (f"tests/{name}", os.path.join(os.path.dirname(path), name)))


def check_file(path, shared, gpu_headers):
    whole = common.read(path)
    text = common.strip(whole)
    on_gpu = needs_gpu(path, whole, gpu_headers)
    helpers = asserting_helpers(text, shared)
    problems, count = [], 0
    for head in HEAD.finditer(text):
        count += 1
        body = body_of(text, head.end())
        where = f"{path}:{text.count(chr(10), 0, head.start()) + 1}: {head.group(2)}.{head.group(3)}"
        found = [statements(body, match.start()) for match in ASSERTION.finditer(body)]
        # ASSERT_TRUE(result) << error is a precondition, not what a test is about.
        substance = [a for a in found if not re.match(r"ASSERT_(TRUE|NE)\s*\(\s*\w+(\.has_value\(\))?\s*\)", a)]
        helper = calls(body, helpers)
        if on_gpu and head.group(1) != "TEST" and "Cuda" not in head.group(2):
            problems.append(f"{where} needs a GPU; without Cuda in the suite's name no script runs it on one")
        if not found and not helper:
            problems.append(f"{where} asserts nothing")
        elif substance and not helper and all(SHAPE.search(a) for a in substance) and "shape" not in path:
            problems.append(f"{where} looks only at shapes; compare values")
    return problems, count


def main():
    os.chdir(sys.argv[1] if len(sys.argv) > 1 else ".")
    problems, tests = [], 0
    shared, gpu_headers = set(), set()
    for path in common.tracked(".h"):
        if path.startswith("tests/"):
            shared = asserting_helpers(common.strip(common.read(path)), shared)
            if NEEDS_GPU.search(common.read(path)):
                gpu_headers.add(path)
    for path in common.tracked("_test.cpp"):
        found, count = check_file(path, shared, gpu_headers)
        problems += found
        tests += count
    if tests == 0:
        problems.append("no test found")
    common.finish(problems, f"{tests} tests")


if __name__ == "__main__":
    main()
