"""Tests of scripts/gpu/convolution-plans on made-up answers of cuDNN: each rule finds what it is for, the list of
exceptions excuses only what it names, and a line that excuses nothing fails. --compiled finds float atomics, and
fails if it does not find those of the control."""

import base64
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

import compiled_plans  # noqa: E402

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


class Compiled(unittest.TestCase):
    """--compiled, on synthetic plans and machine code."""

    ATOMIC = "REDG.E.ADD.F32.FTZ.RN.STRONG.GPU"

    def check(self, *plans_made, gpus=("sm_80",)):
        """The exit code and the text for plans (gpu, problem, engine, operations of its kernel)."""
        lines, codes = [{"cudnn": "cuDNN 9.0.0", "gpus": gpus}], {}
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            for i, (gpu, problem, engine, operations) in enumerate(plans_made):
                image = " ".join(operations).encode()
                codes[image] = [("", "kernel", [(0, operation, "") for operation in operations])]
                kernels = [{"kernelName": "kernel", "cubin": base64.b64encode(image).decode()}]
                (folder / f"{i}.json").write_text(json.dumps({"engine": {"payload": {"kernels": kernels}}}))
                lines.append({"gpu": gpu, "problem": problem, "engine": engine, "file": f"{i}.json"})
            printed = io.StringIO()
            with (
                mock.patch.dict("os.environ", {"CUOBJDUMP": "cuobjdump"}),
                mock.patch.object(compiled_plans, "kernels_of", lambda _, path: codes[path.read_bytes()]),
                contextlib.redirect_stdout(printed),
            ):
                status = compiled_plans.check(["\n".join(map(json.dumps, lines))], folder)
        return status, printed.getvalue()

    def control(self, gpu="sm_80", operations=(ATOMIC,)):
        return (gpu, "control", 3, operations)

    def test_plans_without_float_atomics(self):
        status, text = self.check(self.control(), ("sm_80", "forward", 71, ("FADD", "REDG.E.ADD.STRONG.GPU")))
        self.assertEqual(status, 0)
        self.assertIn("eng71   sm_80       1  none\n", text)
        self.assertIn(f"eng3    sm_80       1  {self.ATOMIC} (1)  (control)", text)
        self.assertIn("1 plans compiled at run time, and 1 of the control; 2 different images; 0 errors", text)

    def test_float_atomics(self):
        for atomic in (self.ATOMIC, "RED.E.ADD.F32.FTZ.RN", "ATOMG.E.ADD.F64.RN", "ATOM.E.ADD.BF16_V2.RN", "UTMAREDG.2D.ADD"):
            status, text = self.check(self.control(), ("sm_80", "weights:n32", 19, ("FADD", atomic, atomic)))
            self.assertEqual(status, 1, atomic)
            self.assertIn(f"eng19  sm_80  kernel  {atomic} (2)  <- adds with float atomics, first in weights:n32", text)
            self.assertNotIn("blind", text)

    def test_a_blind_check(self):
        tested = [("sm_80", "forward", 71, ("FADD",)), ("sm_90", "forward", 71, ("FADD",))]
        for controls in ([self.control()], [self.control(), self.control("sm_90", ("FADD",))]):
            status, text = self.check(*controls, *tested, gpus=("sm_80", "sm_90"))
            self.assertEqual(status, 1)
            self.assertIn("sm_90  <- the check is blind: it found no float atomics in the control", text)
            self.assertNotIn("sm_80  <-", text)

    def test_no_plans(self):
        status, text = self.check(self.control())
        self.assertEqual(status, 1)
        self.assertIn("cuDNN compiled no plan: is libcuda_stand_in first on LD_LIBRARY_PATH", text)

    def test_a_plan_without_code(self):
        for payload in ({}, {"kernels": []}, {"kernels": [{"kernelName": "kernel"}]}):
            with self.assertRaisesRegex(SystemExit, "eng71  sm_80: the plan has no"):
                compiled_plans.images_of({"engine": {"payload": payload}}, "eng71  sm_80")


if __name__ == "__main__":
    unittest.main()
