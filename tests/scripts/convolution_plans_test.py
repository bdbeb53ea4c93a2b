"""Tests of scripts/gpu/convolution-plans on made-up answers of cuDNN: each rule finds what it is for, the list of
exceptions excuses only what it names, and a line that excuses nothing fails."""

import contextlib
import importlib.machinery
import importlib.util
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "gpu"
sys.path.insert(0, str(SCRIPTS))
sys.dont_write_bytecode = True
LOADER = importlib.machinery.SourceFileLoader("convolution_plans", str(SCRIPTS / "convolution-plans"))
plans = importlib.util.module_from_spec(importlib.util.spec_from_loader("convolution_plans", LOADER))
LOADER.exec_module(plans)

LIMIT = 64 << 20


def answer(**changed):
    """An answer of the program that breaks no rule."""
    return {
        "gpu": "sm_90",
        "problem": "forward:n256:56x56x64>56x56x64:k3x3:s1x1:p1x1:d1x1:g1:bf16",
        "own": False,
        "plans": 6,
        "first": "cudnn:eng41",
        "tensor_place": 0,
        "tensor_workspace": 0,
        "precision": "bf16",
        "pass": "forward",
        "networks": ["resnet18"],
    } | changed


def without_tensor_cores(workspace, **changed):
    """An answer without tensor cores among the first plans."""
    made = answer(tensor_workspace=workspace, **changed)
    del made["tensor_place"]
    return made


class Rules(unittest.TestCase):
    def broken(self, made):
        return plans.rule_broken_by(made, LIMIT)

    def test_none(self):
        self.assertIsNone(self.broken(answer()))
        self.assertIsNone(self.broken(answer(tensor_place=5, tensor_workspace=LIMIT)))

    def test_plan(self):
        made = without_tensor_cores(None, plans=0)
        del made["first"]
        self.assertEqual(self.broken(made), "plan")
        self.assertEqual(self.broken(made | {"precision": "fp32"}), "plan")

    def test_tensor(self):
        self.assertEqual(self.broken(without_tensor_cores(None)), "tensor")

    def test_workspace(self):
        self.assertEqual(self.broken(without_tensor_cores(LIMIT + 1)), "workspace")

    def test_compared(self):
        self.assertEqual(self.broken(without_tensor_cores(LIMIT)), "compared")

    def test_fp32_needs_no_tensor_cores(self):
        made = answer(precision="fp32")
        del made["tensor_place"], made["tensor_workspace"]
        self.assertIsNone(self.broken(made))


class Script(unittest.TestCase):
    """The script as a whole, on files with the output of the program."""

    def run_script(self, allowed, *outputs, arguments=()):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "convolution-plans.allow").write_text(allowed)
            files = []
            for i, answers in enumerate(outputs):
                lines = [{"cudnn": "cuDNN 9.0.0", "workspace": LIMIT, "convolutions": 1}, *answers]
                files.append(str(folder / f"{i}.jsonl"))
                pathlib.Path(files[-1]).write_text("".join(json.dumps(line) + "\n" for line in lines))
            printed = io.StringIO()
            command = ["convolution-plans", *arguments, "--from", *files]
            status = 0
            with (
                mock.patch.object(plans, "ALLOWED", folder / "convolution-plans.allow"),
                mock.patch.object(sys, "argv", command),
                contextlib.redirect_stdout(printed),
            ):
                try:
                    plans.main()
                except SystemExit as end:
                    status = end.code
            return status, printed.getvalue()

    def test_nothing_to_report(self):
        status, text = self.run_script("", [answer()], [answer(gpu="sm_80", tensor_place=3)])
        self.assertEqual(status, 0)
        self.assertIn("cuDNN 9.0.0, 64 MiB of workspace: 2 problems, 0 exceptions, 0 of them not listed", text)
        rows = [line.split() for line in text.splitlines() if line.startswith("sm_")]
        self.assertEqual(
            rows,
            [["sm_90", "bf16", "forward", "1", "1", "1", "0"], ["sm_80", "bf16", "forward", "1", "1", "0", "0"]],
        )

    def test_an_exception_that_is_not_listed(self):
        made = without_tensor_cores(200 << 20)
        status, text = self.run_script("", [answer(), made])
        self.assertEqual(status, 1)
        self.assertIn(f"workspace  sm_90  {made['problem']}  first cudnn:eng41  needs 200 MiB  <- not listed", text)

    def test_a_listed_exception(self):
        made = without_tensor_cores(200 << 20)
        for line in ("workspace sm_90 *:g1:bf16", "workspace,tensor sm_80,sm_9? *"):
            other = [without_tensor_cores(None), *(without_tensor_cores(w, gpu="sm_80") for w in (None, 200 << 20))]
            status, text = self.run_script(f"{line}  # why\n", [made] if "," not in line else [made, *other])
            self.assertEqual(status, 0, text)
            self.assertNotIn("needs 200 MiB", text)
        status, text = self.run_script("workspace sm_90 *  # why\n", [made], arguments=["--all"])
        self.assertEqual(status, 0)
        self.assertIn("needs 200 MiB  (allowed)", text)

    def test_lines_for_something_else(self):
        made = without_tensor_cores(200 << 20)
        for line in ("tensor sm_90 *", "workspace sm_80 *", "workspace sm_90 weights:*"):
            status, text = self.run_script(f"{line}  # why\n", [made])
            self.assertEqual(status, 1)
            self.assertIn("<- not listed", text)
            self.assertIn(f"no problem needs '{line}'", text)

    def test_a_line_that_nothing_needs(self):
        status, text = self.run_script("tensor sm_90,sm_80 *  # why\n", [without_tensor_cores(None)])
        self.assertEqual(status, 1)
        self.assertIn("no problem needs 'tensor sm_80 *' of convolution-plans.allow; remove it", text)
        self.assertIn("0 of them not listed", text)

    def test_invalid_lines(self):
        for line, words in (
            ("tensor sm_90 *", "does not say why"),
            ("speed sm_90 *  # why", "expected 'RULES GPUS PROBLEM  # why'"),
            ("tensor sm_90  # why", "expected 'RULES GPUS PROBLEM  # why'"),
        ):
            status, _ = self.run_script(line + "\n", [answer()])
            self.assertIn(words, str(status))

    def test_outputs_that_do_not_belong_together(self):
        status, _ = self.run_script("", [answer()], [])
        self.assertIn("expected the output of convolution_plans", status)
        facts = {"cudnn": "cuDNN 9.0.0", "workspace": LIMIT}
        texts = ["\n".join(map(json.dumps, (f, answer()))) for f in (facts, facts | {"workspace": 1})]
        with self.assertRaisesRegex(SystemExit, "the outputs differ"):
            plans.answers_in(texts)

    def test_a_missing_program(self):
        with self.assertRaisesRegex(SystemExit, "build the target convolution_plans"):
            plans.outputs_of(pathlib.Path("/nonexistent/convolution_plans"), [])

    def test_the_list_of_the_project(self):
        entries = plans.allowed_entries(plans.ALLOWED)
        self.assertTrue(entries)
        self.assertFalse([e for e in entries if e.rule == "plan"], "every problem has a plan")


if __name__ == "__main__":
    unittest.main()
