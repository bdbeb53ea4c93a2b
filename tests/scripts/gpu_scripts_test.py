#!/usr/bin/env python3
"""What can be said of scripts/gpu-check, gpu-results and bench-peers without a GPU: which skips
count, how calls add up, and that a program which fails costs no other's numbers."""

import importlib.machinery
import json
import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "scripts" / "gpu"), str(ROOT / "scripts" / "peers")]

import correctness  # noqa: E402
import runs  # noqa: E402
import speed  # noqa: E402
from rounds import Program, stop, survivors, take_turns  # noqa: E402

SUMMARY = "[doctest] test cases:   11 |   11 passed | 0 failed | 54 skipped\n"
ONE_GPU = "skipped: NCCL needs two GPUs [in: gradients summed in buckets]\n"
NO_GPU = "skipped: no CUDA device: no NVIDIA driver is installed [in: steps as graphs]\n"

# A program that plays dpt and every peer; FAULTS names which one fails, and how.
FAKE = """#!/usr/bin/env python3
import json, os, sys, time
words = sys.argv
if "gpu_peak" in " ".join(words):
    print(json.dumps({"fp32": 50000, "tf32": 400000, "bf16": 800000}))
    sys.exit()
name = "dpt"
if "--variant" in words:
    name = ("torch-" if "torch" in words[1] else "jax-") + words[words.index("--variant") + 1]
fault = json.loads(os.environ.get("FAULTS", "{}")).get(name)
runs = 0
for line in sys.stdin:
    if line.strip() == "memory":
        print(0, flush=True)
        continue
    kind, count = line.split()
    losses = [2.3 - 0.01 * i + (fault == "differs") for i in range(int(count))]
    if kind == "losses":
        if fault == "hangs":
            time.sleep(100)
        if fault == "dies":
            sys.exit("it died")
        print(json.dumps(losses), flush=True)
        continue
    if "--losses" in words:
        for i, loss in enumerate(losses):
            print(f"loss {i + 1} {loss}")
    runs += 1
    if fault == "dies in a round" and runs > 4:
        sys.exit("it died")
    print(int(count) * (1e-5 if name == "dpt" else 4e-5), flush=True)
"""


def stage(status, why=""):
    return {"status": status, "why": why, "seconds": 1.0}


def a_run(date, stages, numbers=None, **version):
    return {
        "date": date,
        "version": {"commit": "a" * 40, "uncommitted": [], "sources": {"x.cu": "1"}, **version},
        "machine": {"device": "NVIDIA H200", "driver": "580"},
        "stages": stages,
        "numbers": numbers or {},
    }


def bench(*peers):
    rates = {"dpt": 4.0, **{peer: 1.0 for peer in peers}}
    programs = {name: {"images_per_s": 1e6 * rate} for name, rate in rates.items()}
    out = {"problems": [], "curves": {}, "programs": programs}
    if peers:
        out.update(best_peer=peers[0], to_best_peer=4.0, to_torch_eager=4.0, of_floor=0.5)
    return out


class Skips(unittest.TestCase):
    def judge(self, text, gpus=1):
        check = types.SimpleNamespace(gpus=gpus, gpu_works=lambda: True)
        return correctness.judge_tests(check, text)

    def test_what_needs_two_gpus_is_right_on_one(self):
        problem, remark = self.judge(ONE_GPU + SUMMARY)
        self.assertEqual(problem, "")
        self.assertIn("NCCL needs two GPUs", remark)
        self.assertIn("1 skipped", self.judge(ONE_GPU + SUMMARY, gpus=2)[0])

    def test_no_gpu_is_wrong(self):
        self.assertIn("1 skipped", self.judge(ONE_GPU + NO_GPU + SUMMARY)[0])
        for text in ("skipped: no NVIDIA driver\n", "skipped: no cuDNN [in: plans]\n"):
            self.assertIn("1 skipped", self.judge(text + SUMMARY)[0])

    def test_the_machine_and_missing_data_are_right(self):
        text = "skipped: /x/gpu-pack/data/cifar10 is not there (set DPT_DATA) [in: a GPU reads it]\n"
        text += "skipped: this processor has no AVX2 [in: kernels of GPU and CPU agree]\n"
        problem, remark = self.judge(text + SUMMARY)
        self.assertEqual(problem, "")
        self.assertIn("cifar10", remark)
        self.assertIn("AVX2", remark)

    def test_a_sanitizer_that_ran_nothing_or_cannot_run(self):
        self.assertEqual(self.judge("ERROR SUMMARY: 0 errors")[0], "no test case ran")
        text = '========= Error: Device not supported. Please refer to the "Supported Devices"'
        self.assertIn("Device not supported", correctness.why_no_sanitizer(text))
        self.assertEqual(correctness.why_no_sanitizer(SUMMARY), "")

    def test_a_sandbox_that_forbids_the_sanitizer(self):
        for line in (
            "========= Error: ptrace(PTRACE_TRACEME) failed: Operation not permitted",
            "========= Internal Sanitizer Error: Failed to attach to the process",
            "compute-sanitizer: error while loading: Permission denied",
        ):
            self.assertIn("the sandbox forbids it", correctness.why_no_sanitizer(line), line)
        # What the tests themselves print is no reason, nor is anything after a summary.
        own = "test: cannot write: Permission denied\n"
        self.assertEqual(correctness.why_no_sanitizer(own + "========= COMPUTE-SANITIZER\n"), "")
        summed = "========= ptrace\n========= ERROR SUMMARY: 2 errors\n"
        self.assertEqual(correctness.why_no_sanitizer(summed), "")

    def test_the_sanitizer_leaves_large_cases_out_and_cudnn_has_a_call_of_its_own(self):
        for pattern in ("*many rows*", correctness.CUDNN_CASES):
            self.assertIn(pattern, correctness.LARGE_CASES.split(","))
        # Patterns that no case has any more would leave nothing out.
        sources = [*(ROOT / "tests" / "kernels").glob("*.cpp")]
        sources += (ROOT / "tests" / "kernels" / "cuda").glob("*.cpp")
        text = " ".join(" ".join(path.read_text() for path in sources).split())
        for pattern in correctness.LARGE_CASES.split(","):
            self.assertIn(pattern.strip("*"), text)


class Adding(unittest.TestCase):
    def test_passed_stages_stay_and_new_ones_come(self):
        first = a_run("1", {"a": stage("passed"), "b": stage("failed"), "c": stage("timed out")})
        second = a_run("2", {"a": stage("timed out"), "b": stage("passed"), "d": stage("failed")})
        both = runs.combine(first, second)
        statuses = {name: entry["status"] for name, entry in both["stages"].items()}
        self.assertEqual(
            statuses, {"a": "passed", "b": "passed", "c": "timed out", "d": "failed"}
        )
        self.assertIn("failed in the run of 1", both["stages"]["b"]["why"])
        self.assertEqual(both["calls"], ["1", "2"])
        self.assertEqual(runs.bad_stages(both), ["c", "d"])

    def test_a_failure_is_not_hidden_by_an_earlier_pass(self):
        both = runs.combine(a_run("1", {"a": stage("passed")}), a_run("2", {"a": stage("failed")}))
        self.assertEqual(both["stages"]["a"]["status"], "failed")

    def test_what_one_gpu_cannot_show_is_not_bad(self):
        run = a_run("1", {"tests:nccl": dict(stage("not run"), expected=True)})
        self.assertEqual(runs.bad_stages(run), [])

    def test_numbers_of_a_call_that_was_cut_off_replace_no_better_ones(self):
        first = {"bench": {"256:tf32": bench("torch-eager", "jax-scan")}, "start": {"x": 1}}
        second = {"bench": {"256:tf32": bench(), "4096:bf16": bench("torch-eager")}}
        both = runs.combine(a_run("1", {}, first), a_run("2", {}, second))
        self.assertIn("to_best_peer", both["numbers"]["bench"]["256:tf32"])
        self.assertIn("to_best_peer", both["numbers"]["bench"]["4096:bf16"])
        self.assertEqual(both["numbers"]["start"], {"x": 1})

    def test_other_code_or_another_device_is_refused(self):
        first = a_run("1", {})
        others = ({"commit": "b" * 40}, {"sources": {"x.cu": "2"}}, {"uncommitted": ["a.cpp"]})
        for version in others:
            with self.assertRaises(ValueError):
                runs.combine(first, a_run("2", {}, **version))
        other = a_run("2", {})
        other["machine"]["device"] = "NVIDIA A100"
        with self.assertRaises(ValueError):
            runs.combine(first, other)
        runs.combine(first, a_run("2", {}, uncommitted=["scripts/gpu-check"]))  # Does not throw.

    def test_of_the_driver_only_the_major_version_counts(self):
        first, second = a_run("1", {"a": stage("passed")}), a_run("2", {})
        first["machine"]["driver"], second["machine"]["driver"] = "580.65.06", "580.95.05"
        self.assertEqual(runs.combine(first, second)["stages"]["a"]["status"], "passed")
        second["machine"]["driver"] = "575.57.08"
        self.assertIn("major version of the driver", runs.difference(first, second))

    def test_calls_are_printed_beside_their_floors(self):
        call = {"name": "conv2 forward", "us": 20.0, "flops": 494e6}
        out = {"step_us": 100.0, "calls": [call, {"name": "loss", "us": 2.0, "flops": 0}]}
        run = a_run("1", {}, {"calls": {"256:tf32": out}})
        lines = runs.call_lines(run)
        self.assertIn("100.0 us", lines[0])
        self.assertRegex(lines[1], r"conv2 forward +20.00 us +floor +1.00 us")
        self.assertNotIn("floor", lines[2])
        self.assertTrue(any("conv2 forward 20.0" in row for row in runs.rows(run)))
        both = runs.combine(run, a_run("2", {}, {"calls": {"4096:bf16": out}}))
        self.assertEqual(sorted(both["numbers"]["calls"]), ["256:tf32", "4096:bf16"])

    def test_goals(self):
        times = {"fast": 1.0, "exact": 1.05, "two replicas": 1.2}
        numbers = {"modes": {"256": times}, "start": {"with plan cache": 0.4}}
        numbers["bench"] = {"256:tf32": bench("torch-eager"), "4096:bf16": bench("torch-eager")}
        numbers["bench"]["4096:fp32"] = bench("jax-scan")
        numbers["bench"]["4096:fp32"]["curves"]["dpt"] = {"agrees": False}
        goals = {what: met for what, _, _, met in runs.goals(a_run("1", {}, numbers))}
        self.assertIs(goals["exact mode (8 shards) over fast, batch 256"], True)
        self.assertIs(goals["2 replicas on one GPU over 1, batch 256"], False)
        self.assertIsNone(goals["exact mode (8 shards) over fast, batch 4096"])
        self.assertIs(goals["start to first step, with plan cache"], True)
        self.assertIs(goals["LeNet, batch 256, tf32"], False)  # Not ten times PyTorch eager.
        self.assertIs(goals["LeNet, batch 4096, bf16"], False)  # Not 20 M images/s.
        self.assertIsNone(goals["LeNet, batch 4096, fp32"])  # Other losses: its times mean nothing.


# A program that plays dpt in a pack.
DPT = """#!/usr/bin/env python3
import json, os, sys
if sys.argv[1:2] == ["devices"]:
    print(os.environ["DEVICES"])
"""
NO_DRIVER = {"cuda": [], "cuda_unavailable": "no NVIDIA driver is installed"}


class Packs(unittest.TestCase):
    def gpu_check(self, devices, *options, earlier=()):
        """What gpu-check of a pack with a played dpt says, its exit code and its JSON."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for part in ("gpu", "peers"):
                shutil.copytree(ROOT / "scripts" / part, folder / "scripts" / part)
            shutil.copy(ROOT / "scripts" / "gpu-check", folder / "scripts")
            version = a_run("1", {})["version"]
            (folder / "VERSION").write_text(json.dumps(version))
            (folder / "dpt").write_text(DPT)
            (folder / "dpt").chmod(0o755)
            with tarfile.open(folder / "programs.tar.xz", "w:xz") as archive:
                archive.add(folder / "dpt", "bin/dpt")
            (folder / "bin").mkdir()  # No nvidia-smi here.
            (folder / "bin" / "python3").symlink_to(sys.executable)
            for i, run in enumerate(earlier):
                (folder / "earlier").mkdir(exist_ok=True)
                (folder / "earlier" / f"{i:02}.json").write_text(json.dumps(run))
            done = subprocess.run(
                [folder / "scripts" / "gpu-check", "--out", folder / "out", *options],
                env=dict(os.environ, DEVICES=json.dumps(devices), PATH=str(folder / "bin")),
                capture_output=True,
                text=True,
                timeout=100,
            )
            return done, json.loads((folder / "out" / "gpu-check.json").read_text())

    def test_without_a_gpu_it_ends_at_once_with_the_reason(self):
        done, result = self.gpu_check(NO_DRIVER)
        self.assertEqual(done.returncode, 4, done.stdout + done.stderr)
        self.assertIn("there is no GPU to check: no NVIDIA driver is installed", done.stdout)
        self.assertEqual(sorted(result["stages"]), ["devices", "machine"])
        old = {"cuda": [{"name": "Tesla V100", "unusable": "compute capability 7.0"}]}
        done, _ = self.gpu_check(old)
        self.assertEqual(done.returncode, 4)
        self.assertIn("compute capability 7.0", done.stdout)

    def test_results_that_came_with_the_pack_are_added_to(self):
        before = a_run("0", {"train": stage("passed")})
        before["machine"] = {"device": "no GPU", "driver": "none"}
        gpu = {"cuda": [{"name": "NVIDIA H200"}]}
        done, result = self.gpu_check(gpu, "--stages", "machine", earlier=[before])
        self.assertIn("train", result["stages"], done.stdout + done.stderr)
        self.assertIn("added to", done.stdout)
        self.assertEqual(done.returncode, 1)  # Not all stages have been asked for.

    def test_two_configurations_of_the_peers_a_call_those_not_known_first(self):
        commands = []

        def run(command, limit, env=None):
            commands.append([str(word) for word in command])
            return 0, "", 1.0

        with tempfile.TemporaryDirectory() as folder:
            known = {"numbers": {"bench": {"256:tf32": bench("torch-eager")}}}
            check = types.SimpleNamespace(
                args=types.SimpleNamespace(device="cuda:0", config=["256:tf32", "4096:bf16", "1:fp32"]),
                gpu_works=lambda: True, pythons={"torch": "t", "jax": "j"}, dpt="dpt",
                env={"LD_LIBRARY_PATH": "/x"},
                out=pathlib.Path(folder), numbers={}, earlier=[known], share=lambda stage: 300.0,
                run=run, say=lambda text: None, note=lambda *words, **more: None,
            )  # fmt: skip
            speed.bench_stage(check)
        asked = [b for a, b in zip(commands[0], commands[0][1:]) if a == "--config"]
        self.assertEqual(asked, ["4096:bf16", "1:fp32"])

    def test_an_earlier_result_that_is_not_there(self):
        done = subprocess.run(
            [ROOT / "scripts" / "gpu-pack", "--add", "/nowhere/gpu-check.json"],
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 3)
        self.assertIn("found no file", done.stderr)


class Turns(unittest.TestCase):
    def test_one_that_hangs_is_left_out(self):
        answers = "while read -r word count; do echo 0.1; done"
        failures = []
        programs = [
            Program("good", ["sh", "-c", answers], None, patience=10),
            Program("hangs", ["sh", "-c", "read -r x; echo 1; exec sleep 100"], None, patience=1),
            Program("missing", ["/nowhere/at/all"], None),
        ]

        def failed(program, error):
            failures.append(program.name)

        begin = time.monotonic()
        try:
            good = survivors(programs, Program.start, failed)
            good = take_turns(good, 2, 0.1, 10, failed)
        finally:
            stop(*programs)
        self.assertEqual([program.name for program in good], ["good"])
        self.assertEqual(failures, ["missing", "hangs"])
        self.assertEqual(len(good[0].seconds_a_step), 2)
        self.assertLess(time.monotonic() - begin, 50)


class Configs(unittest.TestCase):
    def test_every_network_is_a_good_config(self):
        dpt = os.environ.get("DPT")
        if not dpt:
            self.skipTest("DPT names no program (ctest sets it)")
        script = str(ROOT / "scripts" / "bench-peers")
        loader = importlib.machinery.SourceFileLoader("bench_peers", script)
        bench_peers = types.ModuleType("bench_peers")
        bench_peers.__file__ = script
        loader.exec_module(bench_peers)
        for net in bench_peers.MFLOP_PER_IMAGE:
            with tempfile.TemporaryDirectory() as folder, self.subTest(net=net):
                (pathlib.Path(folder) / "patch.json").write_text("[]")
                config = bench_peers.dpt_config(net, pathlib.Path(folder) / "data")
                done = subprocess.run(
                    [dpt, "config", "check", *config, "data.batch_size=32"],
                    capture_output=True,
                    text=True,
                )
                self.assertEqual(done.returncode, 0, done.stderr)


class Peers(unittest.TestCase):
    def bench_peers(self, faults, *options):
        """The numbers of a run with the given faults, and its exit code."""
        data = pathlib.Path(os.environ.get("DPT_DATA", ROOT.parent / "shared" / "datasets"))
        if not (data / "fashion-mnist" / "train-images-idx3-ubyte.gz").exists():
            reason = f"{data}/fashion-mnist is not there (set DPT_DATA)"
            print(f"\nskipped: {reason} [in: {self.id()}]", flush=True)  # for scripts/skipped-tests
            self.skipTest(reason)
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder) / "fake"
            fake.write_text(FAKE)
            fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
            numbers = pathlib.Path(folder) / "numbers.json"
            names = {"DPT_PYTHON_TORCH": str(fake), "DPT_PYTHON_JAX": str(fake)}
            done = subprocess.run(
                [ROOT / "scripts" / "bench-peers", "--device", "cuda", "--dpt", fake]
                + ["--json", numbers, "--rounds", "2", "--seconds", "0.01", *options],
                env=dict(os.environ, FAULTS=json.dumps(faults), **names),
                capture_output=True,
                text=True,
                timeout=100,
            )
            return json.loads(numbers.read_text()), done

    def test_those_that_fail_cost_no_other_numbers(self):
        faults = {"torch-eager": "dies", "torch-graph": "differs"}
        faults["torch-compile-autotune"] = "hangs"
        options = ["--config", "4096:tf32", "--patience", "8"]
        numbers, done = self.bench_peers(faults, *options)
        out = numbers["4096:tf32"]
        self.assertEqual(sorted(out["programs"]), ["dpt", "jax-scan"], done.stderr)
        self.assertAlmostEqual(out["to_best_peer"], 4.0)
        self.assertEqual(len(out["problems"]), 3)
        self.assertEqual(done.returncode, 0)

    def test_on_a_cpu_too_a_peer_that_differs_is_left_out_and_the_rest_is_printed(self):
        options = ["--device", "cpu", "--batch", "1"]
        numbers, done = self.bench_peers({"jax-scan": "differs"}, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        out = numbers["1:fp32"]
        names = ["dpt", "jax-jit", "torch-compile", "torch-compile-autotune", "torch-eager"]
        self.assertEqual(sorted(out["programs"]), names, done.stderr)
        self.assertAlmostEqual(out["to_best_peer"], 4.0)
        self.assertEqual(len(out["problems"]), 1)
        self.assertIn("jax-scan: its losses differ", done.stderr)
        self.assertIn(out["machine"], done.stdout)
        # The state that is timed is that of thousands of steps, not of the first ones.
        begin, end = out["programs"]["dpt"]["timed_steps"]
        self.assertGreaterEqual(begin, 6000)
        self.assertIn(f"timed steps {begin + 1} to {end}", done.stdout)

    def test_no_comparison_is_a_failure(self):
        peers = ("torch-eager", "torch-compile", "torch-compile-autotune", "jax-jit", "jax-scan")
        faults = {peer: "dies" for peer in peers}
        numbers, done = self.bench_peers(faults, "--device", "cpu", "--batch", "256")
        self.assertEqual(list(numbers["256:fp32"]["programs"]), ["dpt"])
        self.assertEqual(done.returncode, 1)

    def test_one_that_dies_in_a_round(self):
        faults = {"jax-scan": "dies in a round"}
        numbers, done = self.bench_peers(faults, "--config", "4096:bf16")
        names = ["dpt", "torch-compile-autotune", "torch-eager", "torch-graph"]
        self.assertEqual(sorted(numbers["4096:bf16"]["programs"]), names, done.stderr)

    def test_dpt_keeps_its_numbers_where_its_losses_differ(self):
        numbers, _ = self.bench_peers({"dpt": "differs"}, "--config", "4096:bf16")
        out = numbers["4096:bf16"]
        self.assertIn("dpt", out["programs"])
        self.assertTrue(runs.differs(out))
        self.assertIn("DIFFER", runs.bench_text("4096:bf16", out))

    def test_out_of_time(self):
        numbers, _ = self.bench_peers({}, "--config", "4096:bf16", "--minutes", "0.3")
        self.assertEqual(numbers["4096:bf16"]["problems"], ["not measured: out of time"])


if __name__ == "__main__":
    unittest.main()
