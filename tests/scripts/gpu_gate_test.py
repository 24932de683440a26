"""scripts/gpu-gate's verdict, with programs in place of a GPU's: what was not asked is no pass."""
import os
import re
import subprocess
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("GALVANI_")}

# A GoogleTest program of one suite: lists it, and says how its tests went.
TESTS = """case "$*" in
  *--gtest_list_tests*Small*|*Small*--gtest_list_tests*) {small} ;;
  *--gtest_list_tests*) printf 'CudaThing.\\n  Works\\n' ;;
  *) {outcome} ;;
esac
"""
PASSES = "echo '[  PASSED  ] 3 tests.'"
SKIPS = "echo '[  PASSED  ] 0 tests.'; echo '[  SKIPPED ] 2 tests, listed below:'"
FAILS = "echo '[  PASSED  ] 2 tests.'; exit 1"
LISTS_SMALL = "printf 'CudaSmallThing.\\n  Works\\n'"
# galvani: doctor and bench, which writes its arguments to the file of --json unless it fails.
PROGRAM = """case $1 in doctor) echo '  computes: rope'; exit {doctor} ;; bench) echo 'a table' ;; esac
[[ $* != *--json* || {bench} == 0 ]] || exit {bench}
arguments=$*
while (($#)); do [[ $1 != --json ]] || echo "$arguments" >"$2"; shift; done
"""


class GpuGate(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        for name in ("path", "binaries", "run"):
            os.mkdir(os.path.join(self.folder, name))
        self.program("path/nvidia-smi", "echo 'NVIDIA Made Up, 9.0, 580.1'")
        self.program("path/compute-sanitizer", 'while [[ $1 == --* ]]; do shift 2; done\n"$@"')
        self.program("binaries/galvani", PROGRAM.format(doctor=0, bench=0))
        self.give_tests(PASSES)

    def program(self, name, body):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write("#!/usr/bin/env bash\n" + body + "\n")
        os.chmod(path, 0o755)

    def give_tests(self, outcome, small=LISTS_SMALL):
        self.program("binaries/things_test", TESTS.format(outcome=outcome, small=small))

    def gate(self, *arguments, gpu=True):
        folders = [os.path.join(self.folder, "path")] if gpu else []
        environment = {**ENVIRONMENT, "GALVANI_RUN_PARENT": os.path.join(self.folder, "run"),
                       "PATH": os.pathsep.join(folders + [ENVIRONMENT["PATH"]])}
        result = subprocess.run([os.path.join(ROOT, "scripts", "gpu-gate"), *arguments], env=environment, check=False,
                                capture_output=True, text=True, timeout=120)
        return result.returncode, result.stdout

    def with_binaries(self, *more):
        return self.gate("--binaries", os.path.join(self.folder, "binaries"), *more)

    def assert_verdict(self, result, code, words):
        self.assertEqual(result[0], code, result[1])
        self.assertIn(words, result[1].splitlines()[-1])

    def test_a_gpu_whose_tests_pass(self):
        code, output = self.with_binaries()
        self.assertEqual(code, 0, output)
        self.assertIn("PASS 3 GPU tests passed on NVIDIA Made Up", output.splitlines()[-1])
        for stage in ("things_test", "memcheck-things", "racecheck-things", "doctor", "bench", "model"):
            self.assertRegex(output, re.compile(rf"^{stage} +ok +\d", re.M), "a line of the table")

    def kept(self, output):
        """The names of the JSON files that the gate says it kept, and what each holds."""
        line = [line for line in output.splitlines()[-2:] if line.startswith("measurements as JSON in ")]
        self.assertEqual(len(line), 1, output)
        folder, names = line[0][len("measurements as JSON in "):].split(": ")
        self.assertTrue(folder.startswith(os.path.join(self.folder, "run", "gpu-gate-")), folder)
        found = {}
        for name in sorted(name for name in os.listdir(folder) if name.endswith(".json")):
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                found[name] = file.read()
        self.assertEqual(names, " ".join(found) or "none")
        return found

    def test_measurements_are_kept_and_named(self):
        found = self.kept(self.with_binaries()[1])
        self.assertEqual(sorted(found), ["bench.json", "model-read-back.json", "model-saved.json", "model.json"])
        for name, words in (("bench.json", "bench --kernels"), ("model.json", "bench --synthetic"),
                            ("model-saved.json", " --save "), ("model-read-back.json", "bench -m ")):
            self.assertIn(words, found[name])
        self.assertNotIn(" --save ", found["model.json"])
        self.assertIn("tune.json", self.kept(self.with_binaries("--tune")[1]))

    def test_measurements_that_failed_are_not_named(self):
        self.program("binaries/galvani", PROGRAM.format(doctor=0, bench=1))
        result = self.with_binaries()
        self.assert_verdict(result, 1, "FAIL bench model failed")
        self.assertEqual(self.kept(result[1]), {})

    def test_a_program_with_a_long_list_is_run(self):
        # A list in several writes: whoever stops reading at the first suite ends the program with a signal.
        self.program("binaries/long_test", 'if [[ "$*" == *--gtest_list_tests* ]]; then for i in 1 2 3; do\n'
                     "printf 'CudaLong%d.\\n  Works\\n' $i; sleep 0.2; done; exit; fi\n" + PASSES)
        code, output = self.with_binaries()
        self.assertEqual(code, 0, output)
        self.assertRegex(output, re.compile(r"^long_test +ok ", re.M))
        self.assertIn("PASS 6 GPU tests passed", output.splitlines()[-1])

    def test_no_gpu_is_no_answer(self):
        self.program("path/nvidia-smi", "exit 9")
        self.assert_verdict(self.with_binaries(), 2, "COULD-NOT-ANSWER no GPU answers here")

    def test_a_toolkit_that_is_too_old_is_no_answer(self):
        self.program("path/nvcc", "echo 'Cuda compilation tools, release 11.8, V11.8.89'")
        # No other compiler: what find_nvcc would find besides is hidden where this machine has one.
        if os.path.exists("/usr/local/cuda/bin/nvcc"):
            self.skipTest("this machine has a compiler that is new enough in /usr/local/cuda")
        self.assert_verdict(self.gate(), 2, "COULD-NOT-ANSWER no nvcc of 12.4 or newer")

    def test_tests_that_all_skip_prove_nothing(self):
        self.give_tests(SKIPS)
        self.assert_verdict(self.with_binaries(), 1, "FAIL no GPU test was executed")

    def test_sanitizers_must_execute_something_too(self):
        self.give_tests(f'[[ "$*" == *Small* ]] && {{ {SKIPS}; exit 0; }}; {PASSES}')
        self.assert_verdict(self.with_binaries(), 1, "FAIL memcheck-things racecheck-things failed")

    def test_what_fails_is_named(self):
        self.give_tests(FAILS)
        self.assert_verdict(self.with_binaries(), 1, "FAIL no GPU test was executed")
        self.program("binaries/more_test", TESTS.format(outcome=PASSES, small=":"))
        self.assert_verdict(self.with_binaries(), 1, "FAIL things_test")
        self.give_tests(PASSES)
        self.program("binaries/galvani", PROGRAM.format(doctor=1, bench=0))
        self.assert_verdict(self.with_binaries(), 1, "FAIL doctor failed")
        self.program("binaries/galvani", PROGRAM.format(doctor=2, bench=0))
        self.assert_verdict(self.with_binaries(), 2, "doctor could not be answered")

    def test_a_missing_sanitizer_is_no_pass(self):
        os.remove(os.path.join(self.folder, "path/compute-sanitizer"))
        code, output = self.with_binaries()
        if "compute-sanitizer is not installed" not in output:
            self.skipTest("this machine has compute-sanitizer")
        self.assert_verdict((code, output), 2, "memcheck-things racecheck-things could not be answered")

    def test_a_folder_that_is_not_there(self):
        self.assert_verdict(self.gate("--binaries", os.path.join(self.folder, "nowhere")), 2, "--binaries needs a folder")


if __name__ == "__main__":
    unittest.main()
