#!/usr/bin/env python3
"""Tests of scripts/check/docs and scripts/check/links: each kind of mistake in a page is found."""

import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def write(folder, **pages):
    for name, text in pages.items():
        path = pathlib.Path(folder, name.replace("__", "/") + ".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


class CheckDocs(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.page = pathlib.Path(self.folder.name, "page.md")

    def check(self, text, *options, before="", code=0, python="python3"):
        self.page.write_text(f"# Page\n\n{before}```console\n{text}```\nend\n", encoding="utf-8")
        done = subprocess.run(
            [ROOT / "scripts" / "check" / "docs", "--program", "/bin/true", *options, self.page],
            env=dict(os.environ, DPT_PYTHON=python), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def agree(self, shown, found):
        self.check(f"$ echo '{found}'\n{shown}\n")

    def differ(self, shown, found):
        self.assertIn("-" + shown, self.check(f"$ echo '{found}'\n{shown}\n", code=1))

    def test_an_equal_output_is_good(self):
        self.assertIn("1 pages, 2 commands, 0 wrong", self.check("$ echo a\na\n$ echo b >&2\nb\n"))

    def test_other_words_are_a_diff_with_file_and_line(self):
        output = self.check("$ echo a\na\n$ echo found\nshown\n", code=1)
        self.assertIn(f"{self.page}:6: $ echo found", output)
        self.assertIn("    -shown\n    +found\n", output)

    def test_a_line_too_many_or_too_few_is_wrong(self):
        self.assertIn("+b", self.check("$ printf 'a\\nb\\n'\na\n", code=1))
        self.assertIn("-b", self.check("$ echo a\na\nb\n", code=1))
        self.assertIn("+a", self.check("$ echo a\n", code=1))
        self.assertIn("-a", self.check("$ true\na\n", code=1))

    def test_numbers_may_differ_by_rounding_only(self):
        self.agree("train loss 0.0457 accuracy 0.9889", "train loss 0.0531 accuracy 0.9861")
        self.differ("train loss 0.0457", "train loss 0.0571")
        self.agree("loss 2.1798", "loss 2.1990")
        self.differ("loss 2.1798", "loss 2.2100")
        self.agree("accuracy 0.0012", "accuracy 0.0014")
        self.differ("accuracy 0.0012", "accuracy 0.0016")
        self.differ("accuracy 0.9343", "accuracy 0.9200")
        self.differ("1300 samples", "1301 samples")

    def test_what_varies_is_masked(self):
        for shown, found in (
            ("(best), 11.0k images/s (0:00)", "(best), 980 images/s (1:12), waiting for data 3 % of the time"),
            ("time: ...", "time: forward 17 %, backward 28 %"),
            ("5 steps in 0:02", "5 steps in 0:13"),
            ("best: epoch 20 of 25", "best: epoch 9 of 25"),
            ("ok  2026-11-26 13:17  5", "ok 2027-01-02 03:04   5"),
            ("dpt 0.1.0", "dpt 0.20.3"),
            ("0123456789abcdef0123", "ffffffffffffffff"),
            ("1.5 KiB in 0.4 s", "3 MiB in 12 s"),
            ("rank 1: node0 (127.0.0.1), process 1: cpu", "rank 1: x.y (127.0.0.1), process 77: cpu"),
            ("host a, rank 0 at 127.0.0.1:1", "host b, rank 0 at 127.0.0.1:29400"),
            ("with 2 threads", "with 1 thread"),
        ):
            self.agree(shown, found)
        self.differ("5 steps in 0:02", "6 steps in 0:02")
        self.differ("best: epoch 20 of 25", "best: epoch 20 of 24")

    def test_progress_of_slow_machines_is_left_out(self):
        line = "epoch 1/3 (31 %%), step 13/123, loss 2.2992, 14 images/s, 4:16 left"
        self.check(f"$ printf 'a\\n{line}\\nb\\n'\na\nb\n")

    def test_dots_stand_for_any_lines(self):
        for shown in ("...", "1\n...", "...\n9", "1\n...\n9", "1\n...\n4\n5\n...\n9", "1\n2\n3\n...\n4\n5\n6\n7\n8\n9"):
            self.check(f"$ seq 9\n{shown}\n")
        for shown in ("...\n8", "2\n...", "1\n...\n5\n4\n...", "1\n...\n9\n9", "1\n...\n4\n6\n...\n9"):
            self.check(f"$ seq 9\n{shown}\n", code=1)

    def test_a_failure_must_be_shown(self):
        self.assertIn("(exit code 3)", self.check("$ (exit 3)\n", code=1))
        self.check("$ (exit 3)\n$ echo $?\n3\n")
        self.check("$ echo 'dpt: error: x'; (exit 3)\ndpt: error: x\n")
        self.assertIn("the shell ended", self.check("$ exit 3\n$ echo b\nb\n", code=1))

    def test_a_block_that_would_be_overlooked_is_an_error(self):
        self.assertIn(":4: expected a line after the", self.check("$ echo \\\n", code=1))
        for begin, expected in (
            ("```console\n$ true\n", ":1: expected a line ``` that ends the block"),
            (" ```console\n $ true\n ```\n", ":1: expected ```console at the start"),
            ("~~~console\n$ true\n~~~\n", ":1: expected ```console at the start"),
        ):
            self.page.write_text(begin, encoding="utf-8")
            done = subprocess.run(
                [ROOT / "scripts" / "check" / "docs", "--program", "/bin/true", self.page],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            self.assertEqual(done.returncode, 1)
            self.assertIn(expected, done.stdout)

    def test_the_folder_is_fresh_and_like_a_clone(self):
        self.check("$ cd build/release && pwd\n/home/you/dpt/build/release\n$ ls ../../configs/digits-lenet.yaml \\\n"
                   "    ../../scripts/check/docs\n../../configs/digits-lenet.yaml\n../../scripts/check/docs\n"
                   "$ x=1 && dpt\n$ echo $x\n1\n")  # fmt: skip

    def test_slow_blocks_run_on_request(self):
        slow = "<!-- check-docs: slow -->\n"
        self.assertIn("skipped: slow commands", self.check("$ echo a\nb\n", before=slow))
        self.check("$ echo a\nb\n", "--slow", before=slow, code=1)

    def test_blocks_with_unmet_needs_are_skipped(self):
        for need, reason in (
            ("no-such-program", "no-such-program is not installed"),
            ("python:no_such_module", "python3 (DPT_PYTHON) lacks no_such_module"),
        ):
            output = self.check("$ echo a\nb\n", before=f"<!-- check-docs: needs {need} -->\n")
            self.assertIn(f"skipped: {reason} [in: {self.page}:4]", output)
        self.check("$ echo a\nb\n", before="<!-- check-docs: needs sh python:json -->\n", code=1)
        self.assertIn("unknown directive", self.check("", before="<!-- check-docs: fast -->\n", code=1))

    def test_files_are_written(self):
        text = "<!-- check-docs: file a.txt -->\n```python\nit's $x\n\n```\n\n"
        self.check("$ cat a.txt\nit's $x\n\n", before=text)

    def test_update_writes_the_output_into_the_page(self):
        self.check("$ seq 3\n1\n$ seq 4\nx\n...\n$ echo 0.10\n0.10\n", "--update")
        updated = "$ seq 3\n1\n2\n3\n$ seq 4\n1\n...\n$ echo 0.10\n0.10\n"
        self.assertEqual(self.page.read_text(), f"# Page\n\n```console\n{updated}```\nend\n")
        self.check(updated)


class CheckLinks(unittest.TestCase):
    GOOD = {
        "README": "# A\n[b](docs/b.md#c-d-e) [there](https://x.y/z#a) `[no](link)`\n```\n[no](link)\n```\n",
        "docs__README": "# Docs\n[c](c.md#a-1)\n",
        "docs__b": "# B\n## `C`: d, [e](../README.md)\n",
        "docs__c": "# C\n## A\n## A\n",
    }

    def check(self, **pages):
        with tempfile.TemporaryDirectory() as folder:
            write(folder, **{**self.GOOD, **pages})
            done = subprocess.run([ROOT / "scripts" / "check" / "links", folder], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1 if pages else 0, done.stdout + done.stderr)
        return done.stdout

    def test_good_links(self):
        self.assertIn("4 pages, 0 wrong links", self.check())

    def test_broken_links(self):
        self.assertIn("docs/b.md:2: d.md: does not exist", self.check(docs__b="# C: d, e\n[d](d.md)\n"))
        self.assertIn("docs/c.md:3: #b: no heading", self.check(docs__c="# A\n# A\n[b](#b)\n"))
        self.assertIn("README.md:1: docs/b.md#c-d-e: no heading", self.check(README="[b](docs/b.md#c-d-e)\n",
                                                                             docs__b="# Other\n"))  # fmt: skip
        self.assertIn("docs/c.md:3: ../../x: is outside", self.check(docs__c="# A\n# A\n[x](../../x)\n"))

    def test_names_of_files_that_moved(self):
        gone = "# A\n`scripts/bench-peers`, `engine/NAME.cpp`, `kernels/cpu/direct_*`, docs/c.md\n# A\n"
        self.assertIn("docs/c.md:2: scripts/bench-peers: no such file\n"
                      "check/links: 4 pages, 1 wrong", self.check(docs__c=gone))  # fmt: skip

    def test_pages_without_a_link_to_them(self):
        self.assertIn("docs/d.md: no link leads here", self.check(docs__d="[d](d.md)\n"))


if __name__ == "__main__":
    unittest.main()
