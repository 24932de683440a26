"""The checkers catch what they are for: each rule is broken on purpose in a small tree, and must be named."""
import os
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
CHECKS = os.path.join(ROOT, "scripts", "checks")
sys.path.insert(0, CHECKS)
import common  # noqa: E402
import test_report  # noqa: E402

WORK_WORD = "TO" "DO"


class Planted(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        subprocess.run(["git", "init", "-q", self.folder.name], check=True)
        self.write("src/core/a.h", "#pragma once\n")
        self.write("src/engine/e.h", '#include "core/a.h"\n')
        self.write("tests/core/a_test.cpp", "TEST(A, Adds) {\n  EXPECT_EQ(add(1, 1), 2);\n}\n")
        self.write("README.md", "# Title\n[here](src/core/a.h) [there](#title)\n")

    def write(self, path, text):
        path = os.path.join(self.folder.name, path)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    def check(self, name):
        result = subprocess.run([sys.executable, os.path.join(CHECKS, name + ".py"), self.folder.name],
                                capture_output=True, text=True, check=False)
        return result.returncode, result.stdout + result.stderr

    def assert_caught(self, name, path, text, expected):
        self.assertEqual(self.check(name)[0], 0, self.check(name)[1])
        self.write(path, text)
        code, output = self.check(name)
        self.assertEqual(code, 1, output)
        self.assertIn(expected, output)
        os.remove(os.path.join(self.folder.name, path))

    def test_include_direction(self):
        def caught(path, text, expected):
            self.assert_caught("include_direction", path, text, expected)
        caught("src/core/b.h", '#include "engine/e.h"\n', "src/core/b.h:1: layer 'core' may not include 'engine'")
        caught("src/core/b.cpp", '\n#include "missing.h"\n', "src/core/b.cpp:2: src/missing.h does not exist")
        caught("src/novel/b.h", "", "'novel' is not a layer")
        caught("include/galvani/p.h", '#include "core/a.h"\n', "a public header may include only")
        self.write("src/bench/x.h", "")
        self.write("src/kernels/moe/moe.cuh", "")
        caught("src/server/y.h", '#include "bench/x.h"\n', "'server' may not include 'bench'")
        caught("src/kernels/qmm/q.cu", '#include "kernels/moe/moe.cuh"\n', "kernels/common/ only")

    def test_includes_in_comments_do_not_count(self):
        self.write("src/core/b.h", '// #include "engine/e.h"\n/*\n#include "engine/e.h"\n*/\n')
        self.assertEqual(self.check("include_direction")[0], 0)

    def test_grep_bars(self):
        bars = {"f<<<1, 2>>>();": "raw kernel launch", 'getenv("A");': "getenv", 'std::printf("x");': "printing",
                "std::cerr << 1;": "printing", "abort();": "ending the process", "if (cc >= 80) {}": "architecture number",
                "#include <cuda_runtime.h>": "CUDA header", f"// {WORK_WORD}: later": "unfinished work",
                "std::regex r;": "std::regex"}
        for text, expected in bars.items():
            self.assert_caught("grep_bars", "src/core/b.cpp", text + "\n", expected)
        self.assert_caught("grep_bars", "src/core/b.h", "#include <iostream>\n", "too heavy")
        self.assert_caught("grep_bars", "tests/core/b_test.cpp", "GTEST_SKIP();\n", "without a reason")
        self.assert_caught("grep_bars", "docs/a.md", "see /" "work/shared\n", "machine paths")

    def test_bars_let_honest_code_through(self):
        self.write("src/core/b.cpp", 'snprintf(b, 4, "abort() printf("); // exit(1)\nlogger.exit(); stop_on_exit_code(3);\n')
        self.write("src/cli/main.cpp", 'std::printf("x"); const char* v = getenv("A");\n')
        self.write("src/device/caps.h", "constexpr bool ok = cc >= 80;\n")
        self.write("tests/core/b_test.cpp", 'GTEST_SKIP() << "no GALVANI_FIXTURES";\n')
        code, output = self.check("grep_bars")
        self.assertEqual(code, 0, output)

    def test_test_lint(self):
        self.assert_caught("test_lint", "tests/core/b_test.cpp", "TEST(B, Runs) {\n  run(1);\n}\n", "B.Runs asserts nothing")
        self.assert_caught("test_lint", "tests/core/b_test.cpp",
                           "TEST(B, Big) {\n  auto y = f();\n  ASSERT_TRUE(y);\n  EXPECT_EQ(y->shape()[0], 3);\n}\n",
                           "B.Big looks only at shapes")
        self.write("tests/core/b_test.cpp", "TEST(B, Big) {\n  EXPECT_EQ(y.shape[0], 3);\n  EXPECT_EQ(y[0], 1.0f);\n}\n")
        self.assertEqual(self.check("test_lint")[0], 0)
        self.write("tests/core/a_test.cpp", "")
        self.write("tests/core/b_test.cpp", "")
        self.assertEqual(self.check("test_lint")[0], 1, "no test at all must not pass")

    def test_test_lint_knows_helpers(self):
        self.write("tests/core/util.h", "inline void same(int a) { EXPECT_EQ(a, 1); }\nvoid twice(int a) { same(a); same(a); }\n")
        self.write("tests/core/b_test.cpp", "TEST(B, A) {\n  twice(1);\n}\nTEST(B, L) {\n  const auto refused = [&](int a) "
                   "{ EXPECT_GT(a, 0); };\n  refused(1);\n}\nvoid idle(int) {}\n"
                   "template <typename F>\nvoid each(int n, F f) {\n  EXPECT_EQ(f(n), n);\n}\nTEST(B, E) {\n"
                   "  each(1, [](int a) { return a; });\n}\n")
        self.assertEqual(self.check("test_lint")[0], 0, self.check("test_lint")[1])
        self.assert_caught("test_lint", "tests/core/c_test.cpp", "void idle(int) {}\nTEST(C, I) {\n  idle(1);\n}\n",
                           "C.I asserts nothing")

    def test_test_lint_names_of_gpu_suites(self):
        skip = "  if (none) GTEST_SKIP() << state.message;\n"
        self.assert_caught("test_lint", "tests/core/b_test.cpp", skip + "TEST_F(Probe, A) {\n  EXPECT_EQ(f(), 1);\n}\n",
                           "Probe.A needs a GPU")
        self.write("tests/core/b_test.cpp", skip + "TEST_F(CudaProbe, A) {\n  EXPECT_EQ(f(), 1);\n}\n")
        self.assertEqual(self.check("test_lint")[0], 0, self.check("test_lint")[1])
        self.write("tests/core/on_gpu.h", skip)
        for include in ("core/on_gpu.h", "on_gpu.h"):
            self.assert_caught("test_lint", "tests/core/c_test.cpp",
                               f'#include "{include}"\nTEST_P(Probe, A) {{\n  EXPECT_EQ(f(), 1);\n}}\n', "needs a GPU")

    def test_file_sizes(self):
        self.assert_caught("file_sizes", "src/core/long.cpp", "\n" * 1001, "above the stop")
        self.write("src/core/long.cpp", "\n" * 601)
        self.assertIn("warning: src/core/long.cpp", self.check("file_sizes")[1])
        self.write("scripts/checks/large_files.txt", "src/core/long.cpp a generated table\n")
        self.assertNotIn("warning", self.check("file_sizes")[1])
        self.write("scripts/checks/large_files.txt", "src/core/long.cpp\n")
        self.assertIn("has no reason", self.check("file_sizes")[1])

    def test_function_lengths(self):
        body = "  work();\n" * 61
        self.write("src/core/f.cpp", f"namespace a {{\nint f(int a) {{\n{body}}}\nclass C {{\n  void g() const {{\n{body}  }}\n}};\n}}\n")
        output = self.check("file_sizes")[1]
        self.assertIn("src/core/f.cpp:2: 61 lines in one function", output)
        self.assertIn("src/core/f.cpp:66: 61 lines in one function", output)
        self.assert_caught_after("src/core/f.cpp", "file_sizes", "int f() {\n" + "  work();\n" * 201 + "}\n", "above the stop of 200")

    def assert_caught_after(self, path, name, text, expected):
        self.write(path, text)
        code, output = self.check(name)
        self.assertEqual(code, 1, output)
        self.assertIn(expected, output)

    def test_links(self):
        self.assert_caught("links", "docs/a.md", "[x](../src/core/b.h)\n", "docs/a.md:1: ../src/core/b.h does not exist")
        self.assert_caught("links", "docs/a.md", "[x](../README.md#nowhere)\n", "no heading for #nowhere")

    def test_strip_keeps_lines(self):
        text = "a /* b\nc */ d // e\n\"f // g\" 1'000 'h' R\"x(i\n)y\")x\" j\n"
        self.assertEqual(common.strip(text).count("\n"), text.count("\n"))
        self.assertEqual(common.strip(text).split(), ["a", "d", '""', "1'000", '""', '""', "j"])


class Report(unittest.TestCase):
    SKIPPED = "a.cpp:4: Skipped\nno GALVANI_FIXTURES\n\n[  SKIPPED ] A.b (0 ms)\n"

    def report(self, *cases):
        lines, ok = test_report.report(cases, "100% tests passed, 0 tests failed out of 2\n")
        return "\n".join(lines), ok

    def test_counts_and_reasons(self):
        text, ok = self.report(("A.a", "passed", ""), ("A.b", "skipped", self.SKIPPED), ("A.c", "skipped", self.SKIPPED))
        self.assertTrue(ok)
        self.assertIn("  2 x no GALVANI_FIXTURES  [A.b, A.c]", text)
        self.assertTrue(text.endswith("100% tests passed, 0 tests failed out of 2\n1 passed, 0 failed, 2 skipped"))

    def test_nothing_executed_fails(self):
        self.assertFalse(self.report()[1])
        self.assertFalse(self.report(("A.b", "skipped", self.SKIPPED))[1])

    def test_failures_and_silent_skips_fail(self):
        text, ok = self.report(("A.a", "passed", ""), ("A.b", "failed", "wrong"))
        self.assertFalse(ok)
        self.assertTrue(text.endswith("\n1 passed, 1 failed (A.b), 0 skipped"), text)
        text, ok = self.report(*((f"A.{i}", "failed", "") for i in range(7)))
        self.assertTrue(text.endswith("7 failed (A.0, A.1, A.2, A.3, A.4 and 2 more), 0 skipped"), text)
        text, ok = self.report(("A.a", "passed", ""), ("A.b", "skipped", "a.cpp:4: Skipped\n\n[  SKIPPED ] A.b\n"))
        self.assertFalse(ok)
        self.assertIn("skipped without saying why: A.b", text)


if __name__ == "__main__":
    unittest.main()
