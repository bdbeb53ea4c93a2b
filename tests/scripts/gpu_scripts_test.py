#!/usr/bin/env python3
"""What can be said of scripts/gpu/check, gpu/results and bench/peers without a GPU: which skips
count, how calls add up, and that a program which fails costs no other's numbers."""

import importlib.machinery
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import types
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "scripts" / "gpu"), str(ROOT / "scripts" / "bench" / "programs")]

import correctness  # noqa: E402
import counters  # noqa: E402
import runs  # noqa: E402
import speed  # noqa: E402
from check import MOST_LOGGED, WISHES, Check, last_words, shortened  # noqa: E402
from rounds import Program, stop, survivors, take_turns  # noqa: E402

SUMMARY = "[doctest] test cases:   11 |   11 passed | 0 failed | 54 skipped\n"
ONE_GPU = "skipped: NCCL needs two GPUs [in: gradients summed in buckets]\n"
NO_GPU = "skipped: no CUDA device: no NVIDIA driver is installed [in: steps as graphs]\n"

# A program that plays dpt and every peer; FAULTS names which one fails, and how. A number is added to
# its losses in bf16.
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
bf16 = "bf16" in words or "train.precision=bf16" in words
off = fault if bf16 and isinstance(fault, float) else float(fault == "differs")
runs = 0
for line in sys.stdin:
    if line.strip() == "memory":
        print(0, flush=True)
        continue
    kind, count = line.split()
    losses = [2.3 - 0.01 * i + off for i in range(int(count))]
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
        runs.combine(first, a_run("2", {}, uncommitted=["scripts/gpu/check"]))  # Does not throw.

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
        """What gpu/check of a pack with a played dpt says, its exit code and its JSON."""
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            for part in ("gpu", "bench/programs"):
                shutil.copytree(ROOT / "scripts" / part, folder / "scripts" / part)
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
                [folder / "scripts" / "gpu" / "check", "--out", folder / "out", *options],
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
            [ROOT / "scripts" / "gpu" / "pack", "--add", "/nowhere/gpu-check.json"],
            capture_output=True,
            text=True,
        )
        self.assertEqual(done.returncode, 3)
        self.assertIn("found no file", done.stderr)


def skip(test, reason):
    """Skips it, and says so as scripts/skipped-tests counts it."""
    print(f"\nskipped: {reason} [in: {test.id()}]", flush=True)
    test.skipTest(reason)


class Repacking(unittest.TestCase):
    def test_a_pack_of_this_commit_is_kept_and_only_its_results_are_replaced(self):
        if not shutil.which("git"):
            skip(self, "git is not installed")
        with tempfile.TemporaryDirectory() as name:
            root, data = pathlib.Path(name) / "repository", pathlib.Path(name) / "data"
            (root / "scripts" / "gpu").mkdir(parents=True)
            shutil.copy(ROOT / "scripts" / "gpu" / "pack", root / "scripts" / "gpu")
            (root / "scripts" / "setup.sh").write_text("say() { :; }\n")
            (root / "scripts" / "install-deps").write_text("#!/bin/sh\nexit 7\n")
            (root / "scripts" / "install-deps").chmod(0o755)
            (root / ".gitignore").write_text("/build/\n")
            (data / "fashion-mnist").mkdir(parents=True)
            for kind in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
                (data / "fashion-mnist" / f"{kind}-ubyte.gz").touch()

            def git(*words):
                author = ["-c", "user.name=x", "-c", "user.email=x@x"]
                done = subprocess.run(
                    ["git", *author, *words], cwd=root, check=True, capture_output=True, text=True
                )
                return done.stdout.strip()

            git("init", "-q")
            git("add", "-A")
            git("commit", "-qm", "x")
            pack = root / "build" / "gpu-pack"
            (pack / "earlier").mkdir(parents=True)
            (pack / "earlier" / "01.json").write_text("old")
            (pack / "programs.tar.xz").write_text("programs")
            version = {"commit": git("rev-parse", "HEAD"), "uncommitted": [], "architectures": "90-real"}
            version.update(cuda="ON", needs_glibc="GLIBC_2.34")
            results = root / "build" / "gpu-check.json"
            results.write_text('{"new": 1}')

            def repack(**more):
                (pack / "VERSION").write_text(json.dumps(dict(version, **more)))
                env = dict(os.environ, DPT_DATA=str(data))
                for unwanted in ("DPT_CUDA", "DPT_CUDA_ARCHITECTURES"):
                    env.pop(unwanted, None)
                command = [root / "scripts" / "gpu" / "pack", "--add", results]
                return subprocess.run(command, env=env, capture_output=True, text=True)

            done = repack()
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("needs glibc 2.34", done.stdout)
            kept = {path.name: path.read_text() for path in (pack / "earlier").iterdir()}
            self.assertEqual(kept, {"00.json": '{"new": 1}\n'})
            self.assertEqual((pack / "programs.tar.xz").read_text(), "programs")
            # Another commit, architecture or build, or edits: it goes on to the build.
            for more in (
                {"commit": "b" * 40},
                {"architectures": "80"},
                {"cuda": "OFF"},
                {"uncommitted": ["kernels/x.cu"]},
            ):
                self.assertEqual(repack(**more).returncode, 7, more)
            (root / "new.cpp").touch()
            self.assertEqual(repack().returncode, 7)


def spread(value):
    return {"median": value, "least": 0.9 * value, "most": 1.1 * value}


PROBES = {
    "device": "NVIDIA H200",
    "timings": [{"name": "step: graph", "device_us": spread(30.0), "host_us": spread(6.0)}],
    "bandwidths": [{"name": "copy on the device", "gb_per_s": spread(4300.0)}],
    "edge_us": {"1 block": 1.1, "full": 1.5, "full, programmatic": 0.9},
    "round_trip_us": 9.5,
}
# What ncu prints: its own lines, the program's output, the table.
NCU_HEAD = """==PROF== Connected to process 77 (/x/bin/dpt)
ready
==PROF== Profiling "conv_gemm" - 0: 0%....50%....100% - 3 passes
12345 images/s
==PROF== Disconnected from process 77
"""
NCU_NAMES = ["conv_gemm", "image_conv", "image_conv", "image_weights", "image_weights"]
IDENTITY = '"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream"'
IDENTITY += ',"Block Size","Grid Size","Device","CC"'


def ncu_output(without=(), launches=5, page="raw"):
    """The output of ncu over so many launches, with a number for each metric but some."""
    values = {metric: None for metrics in counters.METRICS.values() for metric in metrics}
    values.update(dict.fromkeys(values, "1,024"), **{"gpu__time_duration.sum": "12,500"})
    values.update((metric, "n/a") for metric in without)
    lines = []
    for i in range(launches):
        where = "dpt::(anonymous namespace)::" if NCU_NAMES[i] == "image_weights" else "dpt::"
        kernel = f"void {where}{NCU_NAMES[i]}<dpt::Tf32, (dpt::Pass)0>(dpt::ConvGemm)"
        own = f'"{i}","77","dpt","127.0.0.1","{kernel}","1","7","(256, 1, 1)","(132, 1, 1)","0","9.0"'
        if page == "raw":
            lines.append(",".join([own, *(f'"{value}"' for value in values.values())]))
        else:
            lines += [f'{own},"Section","{name}","unit","{text}"' for name, text in values.items()]
    if page == "raw":
        head = ",".join([IDENTITY, *(f'"{name}"' for name in values)])
        units = ",".join(['"","","","","","","","","","",""', *(['"ns"'] * len(values))])
        lines = [head, units, *lines]
    else:
        lines.insert(0, IDENTITY + ',"Section Name","Metric Name","Metric Unit","Metric Value"')
    return NCU_HEAD + "\n".join(lines) + "\n"


class Recorder:
    """Plays the Check of a stage: answers each command with the next of the given outputs, and keeps
    the commands and notes."""

    def __init__(self, folder, outputs=(), gpu=True, left=300.0):
        self.work = self.out = pathlib.Path(folder)
        self.outputs, self.gpu, self.left_s = list(outputs), gpu, left
        self.args, self.earlier = types.SimpleNamespace(device="cuda:0"), []
        self.gpus, self.lock = 1, threading.Lock()
        self.dpt, self.env, self.numbers = "dpt", {}, {}
        self.commands, self.limits, self.notes = [], [], {}

    def gpu_works(self):
        return self.gpu

    def share(self, stage):
        return self.left_s

    def say(self, text):
        pass

    def note(self, stage, status, why="", seconds=0.0, **more):
        self.notes[stage] = (status, why)

    def run(self, command, limit, env=None):
        with self.lock:  # Stages run programs at the same time.
            self.commands.append([str(word) for word in command])
            self.limits.append(limit)
            code, text = self.outputs.pop(0)
        return code, text, 1.0

    judge = Check.judge


class Probes(unittest.TestCase):
    def stage(self, code, text, **more):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "bin").mkdir()
            (pathlib.Path(folder) / "bin" / "gpu_probes").touch()
            check = Recorder(folder, [(code, text)], **more)
            counters.probes_stage(check)
        return check

    def test_numbers_are_kept_and_shown(self):
        check = self.stage(0, "a word\n" + json.dumps(PROBES) + "\n")
        self.assertEqual(check.notes["probes"][0], "passed", check.notes)
        self.assertIn("full, programmatic 0.90", check.notes["probes"][1])
        self.assertEqual(check.numbers["probes"], PROBES)
        self.assertLessEqual(check.limits[0], 60)
        rows = runs.rows(a_run("1", {}, {"probes": PROBES}))
        self.assertTrue(any("copy on the device 4300 GB/s" in row for row in rows))
        lines = runs.probe_lines(PROBES)
        self.assertRegex(lines[1], r"step: graph +30.00 \(27.00 to 33.00\).* 6.00")
        self.assertIn("4300.0 GB/s", lines[2])

    def test_output_that_is_not_whole_is_a_failure(self):
        broken = [json.dumps(PROBES)[:-9], "", "[]", json.dumps(dict(PROBES, timings=[]))]
        broken.append(json.dumps(dict(PROBES, edge_us={})))
        zero = [{"name": "x", "device_us": spread(0.0), "host_us": spread(1.0)}]
        broken.append(json.dumps(dict(PROBES, timings=zero)))
        for text in broken:
            check = self.stage(0, text)
            self.assertEqual(check.notes["probes"][0], "failed", text)
            self.assertNotIn("probes", check.numbers)
        self.assertEqual(self.stage(1, "gpu_probes: it broke").notes["probes"][0], "failed")
        self.assertEqual(self.stage(None, "").notes["probes"][0], "timed out")
        self.assertEqual(self.stage(0, "", gpu=False).notes["probes"][0], "no GPU")

    def test_a_pack_without_cuda_has_none(self):
        with tempfile.TemporaryDirectory() as folder:
            check = Recorder(folder)
            counters.probes_stage(check)
        self.assertEqual(check.notes["probes"][0], "not run")

    def test_the_program_itself_on_an_emulated_gpu(self):
        program = os.environ.get("DPT_GPU_PROBES")
        if not program:
            self.skipTest("DPT_GPU_PROBES names no program (ctest sets it where GPUs are emulated)")
        few = ["--repeats", "3", "--calls", "3", "--mebibytes", "1"]
        done = subprocess.run([program, *few], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        problem, _, numbers = counters.judge_probes(done.stdout)
        self.assertEqual(problem, "")
        names = [timing["name"] for timing in numbers["timings"]]
        self.assertEqual(len(names), len(set(names)))
        self.assertGreaterEqual(len([name for name in names if name.startswith("step: ")]), 6)
        self.assertEqual(len(numbers["bandwidths"]), 3)
        done = subprocess.run([program, "--device", "9"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 4)
        self.assertIn("no GPU number 9", done.stderr)
        done = subprocess.run([program, "--repeats", "x"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 2)
        fault = dict(os.environ, DPT_EMULATED_FAIL="cudaGraphInstantiate:3:cudaErrorInvalidValue")
        done = subprocess.run([program, *few], capture_output=True, text=True, env=fault)
        self.assertEqual(done.returncode, 4)
        self.assertIn("cudaGraphInstantiate", done.stderr)


class Counters(unittest.TestCase):
    def stage(self, *outputs, tool="/x/ncu", **more):
        """The stage with a played ncu, which gets every second output; the others are dpt's."""
        find, counters.find_ncu = counters.find_ncu, lambda: tool
        try:
            with tempfile.TemporaryDirectory() as folder:
                check = Recorder(folder, outputs, **more)
                counters.ncu_stage(check)
        finally:
            counters.find_ncu = find
        return check

    def test_the_five_convolutions_of_both_configurations(self):
        check = self.stage((0, "ok"), (0, ncu_output()), (0, "ok"), (0, ncu_output()))
        for config in counters.CONFIGS:
            self.assertEqual(check.notes[f"ncu:{config}"][0], "passed", check.notes)
            kernels = check.numbers["ncu"][config]["kernels"]
            self.assertEqual(len(kernels), 5)
            self.assertEqual(kernels[0]["us"], 12.5)
            self.assertEqual(kernels[0]["registers"], 1024)
            self.assertEqual(kernels[0]["grid"], "(132, 1, 1)")
        without, with_ncu = check.commands[:2]
        self.assertEqual(with_ncu[-len(without) :], without)  # The same step.
        self.assertEqual(with_ncu[with_ncu.index("--launch-count") + 1], "5")
        self.assertIn("data.batch_size=4096", check.commands[3])
        self.assertIn("train.precision=bf16", check.commands[3])
        note = check.notes["ncu:256:tf32"][1]
        self.assertIn("conv_gemm 12.5 us, tensor pipe 1024 %, 1024 registers", note)
        rows = runs.rows(a_run("1", {}, check.numbers))
        self.assertTrue(any("; image_weights 12.5 us" in row for row in rows))

    def test_both_pages_of_ncu_are_read(self):
        raw, details = (counters.parse_csv(ncu_output(page=page)) for page in ("raw", "details"))
        self.assertEqual(len(raw), 5)
        self.assertEqual(raw, details)
        self.assertEqual(counters.parse_csv(NCU_HEAD), [])

    def test_the_kernels_are_those_of_the_sources(self):
        sources = " ".join(
            path.read_text() for path in (ROOT / "kernels" / "cuda" / "conv").glob("image*.cu*")
        ) + (ROOT / "kernels" / "cuda" / "conv" / "gemm_kernel.cuh").read_text()
        for kernel in set(NCU_NAMES):
            self.assertRegex(sources, rf"__global__[^;{{]*\b{kernel}\(")
            self.assertRegex(kernel, counters.KERNELS.removeprefix("regex:"))
        self.assertNotRegex("sum_splits_kernel", counters.KERNELS.removeprefix("regex:"))

    def test_where_ncu_is_missing_or_not_permitted_it_is_not_run(self):
        check = self.stage(tool=None)
        self.assertEqual(check.notes["ncu:256:tf32"], ("not run", "this machine has no ncu"))
        self.assertEqual(check.commands, [])
        for line in (
            "==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU",
            "==ERROR== Failed to initialize the profiler: LibraryNotLoaded",
            "==ERROR== Profiling is not supported on device 0.",
        ):
            text = f"==PROF== Connected to process 77\n{line}\n"
            check = self.stage(*[(0, "ok"), (1, text)] * 2)
            status, why = check.notes["ncu:256:tf32"]
            self.assertEqual(status, "not run", line)
            self.assertIn("ncu says", why)
            self.assertNotIn("256:tf32", check.numbers["ncu"])
        # What the program under it says is no reason.
        check = self.stage(*[(0, "ok"), (4, "dpt: Operation not permitted\n")] * 2)
        self.assertEqual(check.notes["ncu:256:tf32"][0], "failed")

    def test_a_metric_that_this_version_does_not_know_is_left_out(self):
        name = counters.METRICS["tensor_pct"][0]
        error = (1, f"==ERROR== Failed to find metric {name}\n")
        good = [(0, "ok"), (0, ncu_output())]
        check = self.stage((0, "ok"), error, (0, ncu_output(without=[name])), *good)
        self.assertEqual(check.notes["ncu:256:tf32"][0], "passed", check.notes)
        self.assertIn(name, " ".join(check.commands[1]))
        self.assertNotIn(name, " ".join(check.commands[2]))
        self.assertEqual(check.numbers["ncu"]["256:tf32"]["unknown_metrics"], [name])

    def test_too_few_launches_or_numbers_are_a_failure(self):
        check = self.stage(*[(0, "ok"), (0, ncu_output(launches=3))] * 2)
        self.assertIn("3 launches were profiled, expected 5", check.notes["ncu:256:tf32"][1])
        lacking = ncu_output(without=counters.METRICS["tensor_pct"])
        check = self.stage(*[(0, "ok"), (0, lacking)] * 2)
        self.assertEqual(check.notes["ncu:256:tf32"], ("failed", "ncu gave no number for tensor_pct"))
        self.assertIn("256:tf32", check.numbers["ncu"])  # The other numbers are of use.
        check = self.stage((4, "dpt: it broke"), (4, "dpt: it broke"))
        self.assertEqual(check.notes["ncu:256:tf32"], ("failed", "without ncu: dpt: it broke"))

    def test_it_ends_within_its_time(self):
        check = self.stage(*[(0, "ok"), (None, "")] * 2, left=70.0)
        self.assertEqual(check.notes["ncu:4096:bf16"][0], "timed out")
        self.assertTrue(all(limit <= 70 for limit in check.limits), check.limits)

    def test_calls_add_up_by_configuration(self):
        five = {"kernels": counters.kernels_of(counters.parse_csv(ncu_output()))}
        three = {"kernels": five["kernels"][:3]}
        first = a_run("1", {}, {"ncu": {"256:tf32": five}, "probes": PROBES})
        second = a_run("2", {}, {"ncu": {"256:tf32": three, "4096:bf16": five}})
        both = runs.combine(first, second)["numbers"]
        self.assertEqual(len(both["ncu"]["256:tf32"]["kernels"]), 5)
        self.assertEqual(len(both["ncu"]["4096:bf16"]["kernels"]), 5)
        self.assertEqual(both["probes"], PROBES)


class Stages(unittest.TestCase):
    def test_every_stage_has_a_call_and_the_sanitizer_all_its_tools(self):
        script = str(ROOT / "scripts" / "gpu" / "check")
        gpu_check = types.ModuleType("gpu_check")
        gpu_check.__file__ = script
        importlib.machinery.SourceFileLoader("gpu_check", script).exec_module(gpu_check)
        asked = re.findall(r"gpu/check --out DIR --stages (\S+)", gpu_check.__doc__)
        stages = [name for call in asked for name in call.split(",")]
        self.assertEqual(set(stages) | set(gpu_check.ALWAYS), set(gpu_check.STAGES))
        page = (ROOT / "docs" / "gpu-results.md").read_text()
        table = re.findall(r"^\| [\d, ]+ \| `([\w,]+)` \|", page, re.M)
        self.assertEqual(table, asked)
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "bin").mkdir()
            for program in ("test_kernels", "test_kernels_cuda"):
                (pathlib.Path(folder) / "bin" / program).touch()
            check = Recorder(folder, gpu=False)
            correctness.sanitizer_stage(check)
        tools = {name.split(":")[1] for name in check.notes}
        self.assertEqual(tools, {"memcheck", "racecheck", "initcheck", "synccheck"})
        self.assertEqual(len(check.notes), 8)

    def test_stages_leave_time_to_those_after_them(self):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "bin").mkdir()
            for program in ("test_kernels_cudnn", "test_kernels_cuda"):
                (pathlib.Path(folder) / "bin" / program).touch()
            check = Recorder(folder, [(0, SUMMARY)] * 2, left=500.0)
            correctness.cudnn_stage(check)
        self.assertEqual(check.limits, [150.0] * 2)
        # What a stage gets is what those requested after it leave.
        stages = ["machine", "devices", "probes", "ncu", "bench"]
        check = types.SimpleNamespace(
            args=types.SimpleNamespace(stages=stages), left=lambda: 500.0, deadline=0
        )
        later = WISHES["ncu"] + WISHES["bench"]
        self.assertEqual(Check.share(check, "probes"), 500.0 - later)
        self.assertEqual(Check.share(check, "bench"), 500.0)
        check.left = lambda: 100.0
        self.assertEqual(Check.share(check, "probes"), 30.0)

    def test_the_sanitizer_runs_what_has_not_passed(self):
        def sanitizer(*passed):
            find, correctness.find_sanitizer = correctness.find_sanitizer, lambda: "/x/sanitizer"
            try:
                with tempfile.TemporaryDirectory() as folder:
                    (pathlib.Path(folder) / "bin").mkdir()
                    for program in ("test_kernels", "test_kernels_cuda"):
                        (pathlib.Path(folder) / "bin" / program).touch()
                    clean = SUMMARY + "========= ERROR SUMMARY: 0 errors\n"
                    check = Recorder(folder, [(0, "--kernel-name"), *[(0, clean)] * 8])
                    check.earlier = [a_run("1", {name: stage("passed") for name in passed})]
                    check.earlier[0]["stages"]["sanitizer:synccheck"] = stage("timed out")
                    correctness.sanitizer_stage(check)
            finally:
                correctness.find_sanitizer = find
            self.assertEqual({status for status, _ in check.notes.values()}, {"passed"})
            return list(check.notes)

        every = sanitizer()
        self.assertEqual(len(every), 8)
        rest = sanitizer("sanitizer:memcheck", "sanitizer:racecheck:cuda")
        self.assertEqual(len(rest), 6)
        self.assertNotIn("sanitizer:memcheck", rest)
        self.assertIn("sanitizer:synccheck", rest)

    def test_the_pack_has_every_file_that_the_tests_read(self):
        pack = (ROOT / "scripts" / "gpu" / "pack").read_text()
        packed = re.search(r"^files=\((.*?)\)", pack, re.M | re.S)[1].split()
        for name in packed:
            self.assertTrue((ROOT / name).exists(), name)
        read = set()
        for path in [*(ROOT / "tests").rglob("*.cpp"), *(ROOT / "tests").rglob("*.h")]:
            text = path.read_text()
            read |= set(re.findall(r'source_dir\(\) \+\s*"/([^"\']+)', text))
            read |= set(re.findall(r'"[^"]*\{\}/((?:tests|scripts|docs|configs)/[\w/]+)', text))
        self.assertIn("scripts/check/export", read)
        self.assertTrue(any(name.startswith("tests/cli/shells/") for name in read), read)
        missing = [
            name
            for name in read
            if not any(name.rstrip("/") == each or name.startswith(each + "/") for each in packed)
        ]
        self.assertEqual(missing, [])

    def test_the_peers_on_a_gpu_are_those_of_the_page(self):
        text = (ROOT / "scripts" / "bench" / "peers").read_text()
        self.assertIn('["eager", "compile-autotune", "graph"], ["scan"]', text)

    def test_a_failed_test_program_is_noted_with_its_cases(self):
        line = "=" * 79 + "\nx_test.cpp:1:\nTEST CASE:  case {}\n\nx_test.cpp:2: ERROR: CHECK( a == b )\n"
        text = "".join(line.format(i) for i in (1, 1, 2)) + "[doctest] Status: FAILURE!\n"
        self.assertEqual(last_words(text), "2 failed: case 1; case 2")
        many = "".join(line.format(i) for i in range(9))
        self.assertEqual(last_words(many), "9 failed: case 0; case 1; case 2 and 6 more")
        self.assertEqual(last_words("one\ntwo\n\n"), "two")
        self.assertEqual(last_words(""), "no output")
        with tempfile.TemporaryDirectory() as folder:
            check = Recorder(folder, [(1, text)])
            check.judge("tests:x", ["x"], 9)
        self.assertEqual(check.notes["tests:x"][1], "exit code 1: 2 failed: case 1; case 2")

    def test_the_log_keeps_the_begin_and_the_end_of_a_long_output(self):
        self.assertEqual(shortened("short"), "short")
        text = shortened("b" * MOST_LOGGED + "x" * 10 * MOST_LOGGED + "e" * MOST_LOGGED)
        self.assertLess(len(text), 3 * MOST_LOGGED)
        self.assertTrue(text.startswith("bbb") and text.endswith("eee"))
        self.assertIn(f"{10 * MOST_LOGGED} characters left out", text)


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


    def test_long_steps_are_warmed_up_with_fewer(self):
        # A step takes 20 ms, so the 6,000 steps of the warm-up would take two minutes.
        answers = 'while read -r word count; do sleep $(awk "BEGIN {print $count / 50}"); '
        answers += 'awk "BEGIN {print $count / 50}"; done'
        failures = []
        until = time.monotonic() + 6
        programs = [Program(name, ["bash", "-c", answers], None, until=until + 5) for name in "ab"]
        hangs = Program("hangs", ["sh", "-c", "exec sleep 100"], None, until=until + 5)
        try:
            good = survivors([hangs, *programs], Program.start, lambda *words: None)
            good = take_turns(good, 2, 0.1, 2000, lambda program, _: failures.append(program.name), until=until)
        finally:
            stop(hangs, *programs)
        self.assertEqual(failures, ["hangs"])
        self.assertEqual([len(program.seconds_a_step) for program in good], [2, 2])
        self.assertLess(time.monotonic(), until + 5)

    def test_what_a_killed_program_started_ends_too(self):
        program = Program("compiles", ["sh", "-c", "(sleep 100 & echo $!; wait) & wait"], None)
        program.start()
        child = pathlib.Path("/proc") / program.line().strip()
        self.assertTrue(child.exists())
        stop(program, patience=0.0)
        gone = time.monotonic() + 10
        while child.exists() and "Z" not in (child / "stat").read_text().split() and time.monotonic() < gone:
            time.sleep(0.01)
        self.assertLess(time.monotonic(), gone)


def load_bench_peers():
    """scripts/bench/peers as a module."""
    script = str(ROOT / "scripts" / "bench" / "peers")
    loader = importlib.machinery.SourceFileLoader("bench_peers", script)
    bench_peers = types.ModuleType("bench_peers")
    bench_peers.__file__ = script
    loader.exec_module(bench_peers)
    return bench_peers


class Curves(unittest.TestCase):
    def judge(self, number_type, offsets, torch_bf16, net="lenet"):
        """Name -> whether it counts, with losses that are off from fp32 by offsets(step), and the problems."""
        fp32 = [2.3 - 0.01 * i for i in range(50)]
        curves = {name: [x + off(i) for i, x in enumerate(fp32)] for name, off in offsets.items()}
        problems = []
        torch_bf16 = curves["torch-eager"] if torch_bf16 else None
        verdicts = load_bench_peers().judge(curves, number_type, net, fp32, torch_bf16, problems)
        return {name: numbers for name, (numbers, _) in verdicts.items()}, problems

    def test_bf16_is_compared_with_fp32_not_with_the_bf16_of_pytorch(self):
        offsets = {
            "dpt": lambda i: 0.001,  # Nearer to fp32 than PyTorch, so far from PyTorch.
            "torch-eager": lambda i: -0.03,
            "torch-compile": lambda i: -0.03,
            "jax-jit": lambda i: 0.044 * (-1) ** i,
            "jax-scan": lambda i: 0.046 * (-1) ** i,  # The mean is 0, but not its distance.
        }
        verdicts, problems = self.judge("bf16", offsets, True)
        counts = {name: numbers["agrees"] for name, numbers in verdicts.items()}
        expected = {name: name != "jax-scan" for name in offsets}
        self.assertEqual(counts, expected)
        self.assertEqual(problems, [])
        self.assertAlmostEqual(verdicts["dpt"]["distance_to_fp32"], 0.001)
        self.assertAlmostEqual(verdicts["dpt"]["distance_of_torch_bf16_to_fp32"], 0.03)
        # The rule of fp32 calls dpt different. It remains for a PyTorch that fails.
        verdicts, problems = self.judge("bf16", offsets, False)
        self.assertFalse(verdicts["dpt"]["agrees"])
        self.assertIn("compared with each other", problems[0])

    def test_losses_that_are_not_finite_never_count(self):
        offsets = {"dpt": lambda i: float("nan"), "torch-eager": lambda i: 0.01}
        verdicts, _ = self.judge("bf16", offsets, True)
        self.assertFalse(verdicts["dpt"]["agrees"])
        offsets = {"dpt": lambda i: 0.001, "torch-eager": lambda i: float("nan")}
        _, problems = self.judge("bf16", offsets, True)
        self.assertEqual(len(problems), 1)

    def test_fp32_and_tf32_agree_with_the_majority(self):
        offsets = {"dpt": lambda i: 0.0, "torch-eager": lambda i: 5e-4, "torch-compile": lambda i: 5e-4}
        for number_type, agrees in (("fp32", False), ("tf32", True)):
            verdicts, _ = self.judge(number_type, offsets, True)
            self.assertEqual(verdicts["dpt"]["agrees"], agrees)
            self.assertIn("largest_difference_of_first_steps", verdicts["dpt"])
        verdicts, _ = self.judge("fp32", offsets, True, net="resnet20")
        self.assertTrue(verdicts["dpt"]["agrees"])

    def test_a_program_that_takes_too_long_to_compile_leaves_time_for_the_others(self):
        bench_peers = load_bench_peers()
        losses = json.dumps([2.0] * 50)
        answers = f"while read -r word count; do [ $word = losses ] && echo '{losses}' || echo 0.1; done"
        begin = time.monotonic()
        args = types.SimpleNamespace(until=begin + 18, rounds=1, seconds=0.01, patience=100)
        programs = [
            Program("torch-compile", ["sh", "-c", "exec sleep 100"], None, until=args.until),
            Program("torch-eager", ["bash", "-c", answers], None, until=args.until),
        ]
        out = {"problems": []}
        try:
            good, curves = bench_peers.read_curves(programs, [], None, args, out)
            self.assertEqual([program.name for program in good], ["torch-eager"])
            self.assertEqual(good[0].run(10), 0.1)
        finally:
            stop(*programs)
        self.assertEqual(list(curves), ["torch-eager"])
        self.assertRegex(out["problems"][0], "torch-compile is left out: after . s it had not compiled")
        self.assertLess(time.monotonic() - begin, 10)
        # Large networks warm up for longer than the rounds are long.
        args = types.SimpleNamespace(until=time.monotonic() + 900, rounds=9, seconds=2.0)
        self.assertLess(bench_peers.until_curves(args) - time.monotonic(), 700)


class Configs(unittest.TestCase):
    def test_every_network_is_a_good_config(self):
        dpt = os.environ.get("DPT")
        if not dpt:
            self.skipTest("DPT names no program (ctest sets it)")
        bench_peers = load_bench_peers()
        for net in bench_peers.MFLOP_PER_IMAGE:
            with tempfile.TemporaryDirectory() as folder, self.subTest(net=net):
                (pathlib.Path(folder) / "patch.json").write_text("[]")
                config = bench_peers.dpt_config(net, pathlib.Path(folder) / "data")
                done = subprocess.run(
                    [dpt, "config", "check", *config, "data.batch_size=32"],
                    capture_output=True,
                    text=True,
                )
                # The data need not be there. Everything else in the config is checked all the same.
                faults = [line for line in done.stderr.splitlines() if "no such folder" not in line]
                self.assertEqual(faults, [], done.stderr)
                self.assertEqual(done.returncode, 3 if done.stderr else 0, done.stderr)


class Peers(unittest.TestCase):
    def bench_peers(self, faults, *options):
        """The numbers of a run with the given faults, and its exit code."""
        data = pathlib.Path(os.environ.get("DPT_DATA", ROOT.parent / "shared" / "datasets"))
        if not (data / "fashion-mnist" / "train-images-idx3-ubyte.gz").exists():
            skip(self, f"{data}/fashion-mnist is not there (set DPT_DATA)")
        with tempfile.TemporaryDirectory() as folder:
            fake = pathlib.Path(folder) / "fake"
            fake.write_text(FAKE)
            fake.chmod(fake.stat().st_mode | stat.S_IXUSR)
            numbers = pathlib.Path(folder) / "numbers.json"
            names = {"DPT_PYTHON_TORCH": str(fake), "DPT_PYTHON_JAX": str(fake)}
            done = subprocess.run(
                [ROOT / "scripts" / "bench" / "peers", "--device", "cuda", "--dpt", fake]
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

    def test_in_bf16_the_distance_to_fp32_decides(self):
        # PyTorch's programs agree with each other, and dpt is nearer to fp32 than they are.
        faults = {name: 0.03 for name in ("torch-eager", "torch-compile", "torch-compile-autotune")}
        faults |= {"dpt": 0.001, "jax-jit": -0.044, "jax-scan": -0.046}
        numbers, done = self.bench_peers(faults, "--device", "cpu", "--config", "256:bf16")
        out = numbers["256:bf16"]
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(sorted(out["programs"]), sorted(faults.keys() - {"jax-scan"}))
        self.assertEqual(len(out["problems"]), 1)
        self.assertIn("jax-scan: its losses differ (distance to fp32 4.60e-02 ", out["problems"][0])
        self.assertAlmostEqual(out["curves"]["dpt"]["distance_to_fp32"], 0.001)
        self.assertAlmostEqual(out["curves"]["dpt"]["distance_of_torch_bf16_to_fp32"], 0.03)
        self.assertIn("distance to fp32 1.00e-03 (PyTorch's bf16: 3.00e-02, limit: 4.50e-02)", done.stdout)
        # PyTorch eager gives the distances even if it does not compete.
        options = ["--device", "cpu", "--config", "256:bf16", "--only", "dpt,jax-jit"]
        numbers, done = self.bench_peers(faults, *options)
        out = numbers["256:bf16"]
        self.assertEqual(sorted(out["programs"]), ["dpt", "jax-jit"], done.stderr)
        self.assertAlmostEqual(out["curves"]["jax-jit"]["distance_of_torch_bf16_to_fp32"], 0.03)

    def test_a_type_that_the_device_lacks(self):
        for config in ("256:tf32", "256", "0:fp32", "x:bf16"):
            done = subprocess.run(
                [ROOT / "scripts" / "bench" / "peers", "--config", config], capture_output=True, text=True
            )
            self.assertEqual(done.returncode, 2)
            self.assertIn(f"expected BATCH:TYPE with a TYPE of fp32, bf16 (--device cpu), found '{config}'", done.stderr)

    def test_out_of_time(self):
        numbers, _ = self.bench_peers({}, "--config", "4096:bf16", "--minutes", "0.3")
        self.assertEqual(numbers["4096:bf16"]["problems"], ["not measured: out of time"])


if __name__ == "__main__":
    unittest.main()
