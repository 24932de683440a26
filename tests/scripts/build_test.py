"""scripts/build names the stage that failed: device compile, host compile, link, or the build system."""
import os
import subprocess
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("GALVANI_")}


class Build(unittest.TestCase):
    def verdict(self, configure, build):
        """The last line of scripts/build with a cmake that does so."""
        with tempfile.TemporaryDirectory() as folder:
            cmake = os.path.join(folder, "cmake")
            with open(cmake, "w", encoding="utf-8") as file:
                file.write(f'#!/usr/bin/env bash\nif [[ $1 == --preset ]]; then {configure}; else {build}; fi\n')
            os.chmod(cmake, 0o755)
            result = subprocess.run(
                [os.path.join(ROOT, "scripts", "build"), "cuda-dev"], check=False, capture_output=True, text=True, timeout=60,
                env={**ENVIRONMENT, "GALVANI_RUN_PARENT": folder, "PATH": folder + os.pathsep + ENVIRONMENT["PATH"]})
        return result.returncode, result.stdout.splitlines()[-1]

    def assert_stage(self, failed, stage):
        code, line = self.verdict(":", f"echo '{failed}'; exit 1")
        self.assertEqual(code, 1, line)
        self.assertIn(f"failed in this stage: {stage};", line)

    def test_each_stage(self):
        self.assert_stage("FAILED: CMakeFiles/galvani_cuda_sm90a.dir/src/kernels/rope/rope_sm70.cu.o", "device compile")
        self.assert_stage("FAILED: CMakeFiles/galvani.dir/src/cuda/launch.cpp.o", "host compile")
        self.assert_stage("FAILED: galvani", "link")
        self.assert_stage("ninja: error: loading build.ninja", "the build system")

    def test_the_first_failure_counts(self):
        self.assert_stage("FAILED: a.dir/b.cu.o\nFAILED: a.dir/b.cpp.o", "device compile")

    def test_configuring(self):
        code, line = self.verdict("echo no compiler; exit 1", "exit 7")
        self.assertEqual(code, 1, line)
        self.assertIn("cmake could not configure cuda-dev", line)

    def test_success(self):
        self.assertEqual(self.verdict(":", ":")[0], 0)


if __name__ == "__main__":
    unittest.main()
