"""scripts/lib.sh: exactly one verdict line, last, whatever ends the script; nothing it started survives it."""
import os
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("GALVANI_")}


def running_commands():
    """Command lines of all processes; read from /proc, since a bare machine has no ps."""
    for number in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{number}/cmdline", "rb") as file:
                yield file.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            pass


def as_from_a_terminal():
    """Background jobs start with SIGINT ignored, jobs under nohup with SIGHUP; a shell cannot trap what was ignored."""
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)


class Lib(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.count = 0

    def script(self, body):
        """Writes a script that sources lib.sh and returns its path."""
        self.count += 1
        path = os.path.join(self.folder.name, f"script{self.count}")
        with open(path, "w", encoding="utf-8") as file:
            file.write(f'#!/usr/bin/env bash\nsource "{ROOT}/scripts/lib.sh"\n{body}\n')
        os.chmod(path, 0o755)
        return path

    def start(self, body, **environment):
        runs = {"GALVANI_RUN_PARENT": self.folder.name, **environment}
        return subprocess.Popen([self.script(body)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                env={**ENVIRONMENT, **runs}, start_new_session=True,
                                preexec_fn=as_from_a_terminal)

    def run_script(self, body, **environment):
        process = self.start(body, **environment)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output

    def assert_verdict(self, result, code, line):
        self.assertEqual(result[0], code, result[1])
        lines = result[1].splitlines()
        self.assertRegex(lines[-1], line)
        verdicts = [text for text in lines if text.startswith(("PASS", "FAIL", "COULD-NOT-ANSWER"))]
        self.assertEqual(len(verdicts), 1, result[1])

    def test_three_verdicts(self):
        self.assert_verdict(self.run_script("begin a; pass all is well"), 0, "^PASS all is well$")
        self.assert_verdict(self.run_script("begin a; fail it is broken"), 1, "^FAIL it is broken$")
        self.assert_verdict(self.run_script("begin a; cannot no network"), 2, "^COULD-NOT-ANSWER no network$")

    def test_a_script_that_breaks_has_not_answered(self):
        self.assert_verdict(self.run_script("begin a; false; pass never"), 2, "^COULD-NOT-ANSWER .*exit code 1")
        self.assert_verdict(self.run_script('begin a; echo "$unset_name"; pass no'), 2, "^COULD-NOT-ANSWER ")
        self.assert_verdict(self.run_script("begin a; say done"), 2, "^COULD-NOT-ANSWER .*exit code 0")

    def stop_with(self, number, body="begin a; say ready; quiet nap sleep 50; pass never"):
        process = self.start(body)
        before = ""
        while "ready" not in before:  # its traps are set by then, however loaded the machine is
            line = process.stdout.readline()
            self.assertTrue(line, f"it ended before it was ready: {before}")
            before += line
        time.sleep(0.3)
        os.kill(process.pid, number)
        output, _ = process.communicate(timeout=40)
        return process.returncode, before + output

    def test_signals(self):
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            start = time.monotonic()
            self.assert_verdict(self.stop_with(number), 2, f"^COULD-NOT-ANSWER stopped by {number.name}")
            self.assertLess(time.monotonic() - start, 40)  # it does not wait for the nap of 50 s

    def test_time_limit(self):
        start = time.monotonic()
        result = self.run_script("begin a 1; quiet nap sleep 50; pass never")
        self.assert_verdict(result, 2, "^COULD-NOT-ANSWER the time limit of 1 s")
        self.assertLess(time.monotonic() - start, 40)  # it does not wait for the nap
        result = self.run_script("begin a 50; quiet nap sleep 60; pass never", GALVANI_TIME_LIMIT="1")
        self.assert_verdict(result, 2, "^COULD-NOT-ANSWER the time limit of 1 s")

    def test_children_end_with_their_script(self):
        marker = f"86{os.getpid()}"  # a duration nobody else sleeps for
        inner = self.script(f"begin inner; quiet nap sleep {marker}; pass never")
        self.assert_verdict(self.stop_with(signal.SIGTERM, f"begin outer; say ready; live inner {inner}; pass never"), 2, "SIGTERM")
        time.sleep(0.3)
        self.assertFalse([line for line in running_commands() if marker in line])

    def test_inner_verdicts_are_indented_and_nested(self):
        inner = self.script("begin inner; pass from inside")
        result = self.run_script(f"begin outer; live inner {inner} && fail the inner one passed")
        self.assert_verdict(result, 1, "^FAIL the inner one passed$")
        self.assertIn("  PASS from inside\n", result[1])
        found = [path for path, _, files in os.walk(self.folder.name) if "verdict" in files]
        self.assertEqual(sum("/outer-" in path and "/inner-" in path for path in found), 1)

    def test_an_inner_script_that_does_not_pass_ends_the_outer_one(self):
        result = self.run_script('begin outer; inner fetch-model nobody; pass never')
        self.assert_verdict(result, 2, "^COULD-NOT-ANSWER fetch-model: unknown model 'nobody'")

    def test_output_and_exit_code_of_children(self):
        result = self.run_script('begin a; code=0; live x bash -c "echo seen; exit 7" || code=$?; '
                                 'quiet y bash -c "echo hidden; exit 3" || code=$code-$?; fail "$code $(cat $RUN_DIR/y.log)"')
        self.assert_verdict(result, 1, "^FAIL 7-3 hidden$")
        self.assertTrue(result[1].startswith("seen\n"))

    def test_stages(self):
        broken = self.run_script("begin a; stage one true; stage two bash -c 'echo why; exit 1'; stage three bash -c 'exit 2'\n"
                                 "stage_table; stages_verdict fine")
        self.assert_verdict(broken, 1, "^FAIL two failed")
        self.assertIn("  | why", broken[1])
        self.assert_verdict(self.run_script("begin a; stage one bash -c 'exit 2'; stages_verdict fine"), 2, "one could not")
        self.assert_verdict(self.run_script("begin a; stage one true; stages_verdict fine"), 0, "^PASS fine$")
        self.assert_verdict(self.run_script("begin a; stages_verdict fine"), 1, "no stage ran")
        self.assert_verdict(self.run_script("begin a; stage one true; stage_if_possible two bash -c 'exit 2'; stages_verdict fine"),
                            0, "^PASS fine; NOT RUN, all or in part: two ")
        self.assert_verdict(self.run_script("begin a; stage one true; stage_if_possible two false; stages_verdict fine"), 1, "two failed")
        self.assert_verdict(self.run_script("begin a; stage_if_possible one bash -c 'exit 2'; stages_verdict fine"), 2, "no stage could run")


if __name__ == "__main__":
    unittest.main()
