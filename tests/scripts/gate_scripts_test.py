#!/usr/bin/env python3
"""Tests of what the gate and the build decide: skipped test cases, the GPUs to build for, and that the
product's CMake does without the tests' folder."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
LOG = """\
1/2 Test: kernels
Command: "/x/test_kernels" "skipped: not this"
skipped: no CUDA device: no NVIDIA driver is installed [in: a case of GPUs]
skipped: no CUDA device: no NVIDIA driver is installed [in: another one]
skipped: no CUDA device: no NVIDIA driver is installed [in: another one]
[doctest] test cases:  65 |  65 passed | 0 failed | 0 skipped
2/2 Test: cli
"""
TMPFS = "skipped: cannot mount a small tmpfs here: Operation not permitted [in: a full disk]\n"
FORMAT = "-- SKIPPED: there is no clang-format (the package clang-format-14 brings it)\n"


class SkippedTests(unittest.TestCase):
    def run_on(self, log, ci):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "Testing", "Temporary")
            path.mkdir(parents=True)
            (path / "LastTest.log").write_text(log)
            return subprocess.run(
                [ROOT / "scripts" / "skipped-tests", folder],
                env=dict(os.environ, CI="true" if ci else ""), capture_output=True, text=True,
            )  # fmt: skip

    def test_the_last_line_counts_cases_and_says_why(self):
        done = self.run_on(LOG + TMPFS + FORMAT, ci=False)
        self.assertEqual(done.returncode, 0)
        last = done.stdout.splitlines()[-1]
        self.assertIn("skipped test cases: 4: 2 x no CUDA device: no NVIDIA driver", last)
        self.assertIn("1 x cannot mount a small tmpfs here", last)
        self.assertIn("1 x there is no clang-format", last)
        self.assertEqual(self.run_on("", ci=True).stdout, "skipped test cases: 0\n")

    def test_on_ci_only_listed_reasons_are_good(self):
        self.assertEqual(self.run_on(LOG, ci=True).returncode, 0)
        done = self.run_on(LOG + TMPFS, ci=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("not in tests/skips.allow: cli: a full disk: cannot mount", done.stdout)
        self.assertIn("skipped test cases: 3", done.stdout.splitlines()[-1])

    def test_no_log_is_an_error(self):
        done = subprocess.run(
            [ROOT / "scripts" / "skipped-tests", "/nowhere"], capture_output=True, text=True
        )
        self.assertEqual(done.returncode, 2)
        self.assertIn("run ctest first", done.stderr)


class Gpus(unittest.TestCase):
    def summary(self, nvidia_smi):
        """The line that configuring ends with, where nvidia-smi is the given shell script."""
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder, "nvidia-smi")
            fake.write_text("#!/bin/sh\n" + nvidia_smi)
            fake.chmod(0o755)
            done = subprocess.run(
                ["cmake", "-G", "Ninja", "-S", ROOT, "-B", pathlib.Path(folder, "build"), "-DDPT_TESTS=OFF"],
                env=dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}"),
                capture_output=True, text=True,
            )  # fmt: skip
            self.assertEqual(done.returncode, 0, done.stderr)
            return next(line for line in done.stdout.splitlines() if line.startswith("-- dpt "))

    def test_without_a_gpu_cuda_is_left_out_in_one_line(self):
        line = self.summary("echo 'NVIDIA-SMI has failed'; exit 9")
        self.assertIn("left out: CUDA (this machine lacks an NVIDIA GPU", line)
        self.assertIn("DPT_CUDA_ARCHITECTURES", line)

    def test_gpus_before_8_0_are_named(self):
        line = self.summary("echo 7.5; echo 6.1")
        self.assertIn("lacks a GPU of compute capability 8.0 or later, and has 6.1, 7.5", line)

    def test_the_gpus_that_are_there(self):
        line = self.summary("echo 9.0; echo 9.0; echo 7.5")
        if "left out" in line:  # No toolkit here, or no cuDNN.
            self.assertIn("(this machine lacks the ", line)
        else:
            self.assertTrue(line.endswith(" for 90-real"), line)


class Emulation(unittest.TestCase):
    def test_the_products_cmake_does_not_name_the_tests_folder(self):
        files = [ROOT / "CMakeLists.txt", *(ROOT / "cmake").iterdir()]
        for folder in ("app", "datasets", "engine", "kernels"):
            files += (ROOT / folder).rglob("CMakeLists.txt")
        for file in files:
            self.assertNotIn("tests/", file.read_text(), file)


if __name__ == "__main__":
    unittest.main()
