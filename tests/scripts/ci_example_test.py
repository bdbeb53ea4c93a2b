#!/usr/bin/env python3
"""Runs the steps of docs/guide/github-actions.yml that call dpt, as a runner of GitHub would."""

import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
EXAMPLE = ROOT / "docs" / "guide" / "github-actions.yml"


def steps_of(text):
    """Returns {name: commands} of the steps that have commands."""
    steps = {}
    for step in re.split(r"^      - ", text, flags=re.MULTILINE)[1:]:
        name = re.match(r"name: (.*)\n", step)
        block = re.search(r"^        run: \|\n((?:          .*\n|\n)+)", step, flags=re.MULTILINE)
        line = re.search(r"^        run: ([^|\n].*)\n", step, flags=re.MULTILINE)
        if name and (block or line):
            steps[name[1]] = textwrap.dedent(block[1]) if block else line[1]
    return steps


class Example(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        (self.folder / "dpt").symlink_to(ROOT)
        text = EXAMPLE.read_text()
        self.steps = steps_of(text)
        self.summary = self.folder / "summary.md"
        self.summary.touch()
        self.environment = dict(os.environ, GITHUB_STEP_SUMMARY=str(self.summary))
        self.environment["PATH"] = f"{pathlib.Path(os.environ['DPT']).parent}:{os.environ['PATH']}"
        self.environment.update(re.findall(r"^  (CONFIG|DEVICES): (\S+)", text, flags=re.MULTILINE))

    def do(self, name):
        command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", self.steps[name]]
        return subprocess.run(
            command, cwd=self.folder, env=self.environment, capture_output=True, text=True
        )

    def do_well(self, name):
        done = self.do(name)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def summarize(self):
        """Returns the summary of the job; None where jq, which runners have, is missing."""
        if not shutil.which("jq"):
            print(f"skipped: jq is not installed [in: {self.id()}]")
            return None
        self.do_well("Write the summary of the job")
        return self.summary.read_text()

    def test_a_good_run_passes(self):
        self.assertIn("smoke test passed", self.do_well("Check the config and try it"))
        self.do_well("Train")
        self.do_well("Draw the report")
        text = EXAMPLE.read_text()
        kept = re.findall(r"^            (\S+)\n", text[text.index("upload-artifact") :], re.MULTILINE)
        self.assertEqual(len(kept), 7)
        for name in kept:
            self.assertTrue((self.folder / name).is_file(), name)
        summary = self.summarize()
        if summary:
            self.assertTrue(summary.startswith("# dpt train: all requirements met\n"), summary)
            self.assertRegex(summary, r"\| test \| 360 \| 0\.\d+ \| 0\.9\d+ \|")
            self.assertIn("status ok", summary)

    def test_a_bad_run_fails_with_the_verdict(self):
        config = (ROOT / "configs" / "digits-lenet.yaml").read_text()
        config = re.sub(r"epochs: \d+", "epochs: 1", config)
        (self.folder / "bad.yaml").write_text(config)
        self.environment["CONFIG"] = "bad.yaml"
        self.assertEqual(self.do("Train").returncode, 7)
        self.do_well("Draw the report")
        summary = self.summarize()
        if summary:
            self.assertIn("| **no** |", summary)

    def test_the_summary_of_a_job_that_did_not_train(self):
        self.environment["CONFIG"] = "missing.yaml"
        self.assertEqual(self.do("Check the config and try it").returncode, 2)
        summary = self.summarize()
        if summary:
            self.assertEqual(summary, "# dpt train: not run\n")


if __name__ == "__main__":
    unittest.main()
