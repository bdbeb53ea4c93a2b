"""One call of gpu/check: runs programs within the time limit and records the result of each stage.
Stages run in several threads; a lock protects what they share."""

import contextlib
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

import runs

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# Seconds that each stage would like; the stages before it leave them, if they can.
WISHES = {"cudnn": 60, "sanitizer": 120, "train": 30, "exactness": 60, "start": 10, "calls": 40}
WISHES.update(modes=25, probes=20, ncu=60, bench=180)
# Characters of a command's output that the log keeps at the beginning and at the end.
MOST_LOGGED = 100_000


def shortened(text):
    """Output for the log: a program that repeats an error without end must not make the log too large
    to be copied back."""
    if len(text) <= 2 * MOST_LOGGED:
        return text
    left_out = len(text) - 2 * MOST_LOGGED
    return f"{text[:MOST_LOGGED]}\n[{left_out} characters left out]\n{text[-MOST_LOGGED:]}"


def last_words(text):
    """What went wrong, from the output of a program that failed: of a test program the cases that
    failed, else the last line."""
    cases = list(dict.fromkeys(re.findall(r"^TEST CASE: +(.*)$", text, re.M)))
    if cases:
        more = f" and {len(cases) - 3} more" if len(cases) > 3 else ""
        return f"{len(cases)} failed: {'; '.join(case[:70] for case in cases[:3])}{more}"
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1][:150] if lines else "no output"


class Check:
    def __init__(self, args, work):
        self.args, self.work = args, work
        # The end itself takes a few seconds.
        self.deadline = time.monotonic() + 60 * args.minutes - 10
        self.lock = threading.RLock()
        self.out = pathlib.Path(args.out).resolve()
        self.out.mkdir(parents=True, exist_ok=True)
        self.log = open(self.out / "gpu-check.log", "a")
        self.date = datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M")
        self.version = json.loads((ROOT / "VERSION").read_text())
        self.stages, self.numbers = {}, {}
        self.machine = {"device": "no GPU", "driver": "none"}
        self.earlier = []
        self.gpus = 0  # that dpt sees
        self.dpt = str(work / "bin" / "dpt")
        self.env = dict(
            os.environ,
            DPT_DATA=str(ROOT / "data"),
            DPT_SOURCE_DIR=str(ROOT),
            DPT_BINARY=self.dpt,
            DPT_IO_SHIM=str(work / "lib" / "libdpt_io_shim.so"),
            DPT=self.dpt,
            DPT_DEVICE=args.device,
            XDG_CACHE_HOME=str(work / "cache"),
        )
        self.pythons = {}

    # ---- time ----

    def left(self):
        return self.deadline - time.monotonic()

    def share(self, stage):
        """Seconds that a stage may take, so that those asked for after it get what they wish."""
        later = self.args.stages[self.args.stages.index(stage) + 1 :]
        return max(30.0, self.left() - sum(WISHES.get(name, 0) for name in later))

    # ---- results ----

    def say(self, text):
        with self.lock:
            print(text, flush=True)
            self.log.write(text + "\n")
            self.log.flush()

    def note(self, stage, status, why="", seconds=0.0, **more):
        with self.lock:
            self.stages[stage] = {"status": status, "why": why, "seconds": round(seconds, 2)}
            self.stages[stage].update(more)
            self.say(f"-- {stage:24} {status:10} {seconds:6.1f} s  {why}")
            self.save()

    def own_result(self):
        """What this call alone has found."""
        return {
            "date": self.date,
            "version": self.version,
            "machine": self.machine,
            "stages": self.stages,
            "numbers": self.numbers,
        }

    def result(self):
        """What is known: this call and the earlier ones that it is added to."""
        result = self.own_result()
        for run in self.earlier:
            result = runs.combine(run, result)
        return dict(result, rows=runs.rows(result), goals=runs.goals(result))

    def save(self):
        with self.lock:
            new = self.out / "gpu-check.json.new"
            new.write_text(json.dumps(self.result(), indent=1) + "\n")
            new.replace(self.out / "gpu-check.json")

    def add_earlier(self, paths):
        """Takes the results of earlier calls in, those of the same code and device. Others cost
        this call nothing: they are left alone, with a word about it."""
        for path in paths:
            try:
                run = json.loads(pathlib.Path(path).read_text())
                why = runs.difference(run, self.own_result())
                why = why and f"it is a run of {why}"
            except (OSError, ValueError, KeyError) as error:
                why = f"the file cannot be read: {error}"
            if why:
                self.say(f"gpu/check: NOT ADDED: {path}: {why}")
            else:
                self.earlier.append(run)
                self.say(f"gpu/check: added to {path}, of {run['date']}")

    # ---- running things ----

    def run(self, command, limit, env=None):
        """(exit code, output, seconds); the code is None if the time was over."""
        limit = max(1.0, min(limit, self.left()))
        begin = time.monotonic()
        # Output goes to a file: what a program has said before it was stopped is kept.
        with tempfile.TemporaryFile("w+", errors="replace") as output:
            process = subprocess.Popen(
                [str(word) for word in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=env or self.env,
                cwd=self.work,
                start_new_session=True,
            )
            try:
                code = process.wait(limit)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = None
            output.seek(0)
            text = output.read()
        seconds = time.monotonic() - begin
        with self.lock:
            words = " ".join(map(str, command))
            self.log.write(f"\n$ {words}\n{shortened(text)}\n[{code}, {seconds:.1f} s]\n")
            self.log.flush()
        return code, text, seconds

    def judge(self, stage, command, limit, accept=None, env=None, cannot=None):
        """Runs a stage that is one program. `accept` looks at the output of one that ended well: it
        returns what is wrong, and what to note if nothing is. `cannot` finds in the output why the
        stage cannot be run here at all."""
        if limit < 1:
            self.note(stage, "timed out", "no time was left for it")
            return False, ""
        code, text, seconds = self.run(command, limit, env)
        status, why = "passed", ""
        if code is None:
            status, why = "timed out", f"stopped after {seconds:.0f} s"
        elif cannot and cannot(text):
            status, why = "not run", cannot(text)
        elif code != 0:
            status, why = "failed", f"exit code {code}: {last_words(text)}"
        elif accept:
            problem, why = accept(text)
            if problem:
                status, why = "failed", problem
        self.note(stage, status, why, seconds)
        return status == "passed", text

    def gpu_works(self):
        return self.stages.get("devices", {}).get("status") == "passed"

    # ---- the machine ----

    def find_libraries(self):
        """NVIDIA's libraries: of Python packages first (cuDNN and cuBLAS that belong together)."""
        candidates = ["python3", "/opt/torch/.venv/bin/python3", "/opt/venv/bin/python3"]
        finder = (
            "import importlib.metadata as m, importlib.util as u, json, site, sys\n"
            "found = {n: m.version(n) for n in ('torch', 'jax') if u.find_spec(n)}\n"
            "print(json.dumps([site.getsitepackages() + sys.path, found]))"
        )
        packages, versions = [], {}
        for python in [sys.executable, *candidates]:
            if not shutil.which(python):
                continue
            code, text, _ = self.run([python, "-c", finder], 30)
            if code != 0:
                continue
            paths, modules = json.loads(text.splitlines()[-1])
            packages += paths
            for module, version in modules.items():
                if module not in self.pythons:
                    self.pythons[module], versions[module] = python, version
        for module in ("torch", "jax"):
            given = os.environ.get(f"DPT_PYTHON_{module.upper()}")
            self.pythons.update({module: given} if given else {})
        folders = []
        for package in packages:
            folders += sorted(pathlib.Path(package).glob("nvidia/*/lib"))
        folders += [pathlib.Path("/usr/local/cuda/lib64"), pathlib.Path("/usr/local/nvidia/lib64")]
        found = list(dict.fromkeys(str(folder) for folder in folders if folder.is_dir()))
        before = os.environ.get("LD_LIBRARY_PATH")
        self.env["LD_LIBRARY_PATH"] = ":".join(found + ([before] if before else []))
        self.machine.update(libraries=found, pythons=self.pythons, versions=versions)

    def machine_stage(self):
        query = [
            "nvidia-smi",
            "--query-gpu=name,driver_version,memory.total",
            "--format=csv,noheader",
        ]
        if not shutil.which("nvidia-smi"):
            self.note("machine", "no GPU", "this machine has no nvidia-smi")
            return
        good, text = self.judge("machine", query, 30)
        if good:
            name, driver, memory = (part.strip() for part in text.splitlines()[0].split(","))
            self.machine.update(device=name, driver=driver, memory=memory)

    def devices_stage(self):
        def accept(text):
            devices = json.loads(text.splitlines()[-1])
            self.machine["dpt_devices"] = devices
            self.gpus = len(devices["cuda"])
            if not self.gpus:
                return devices.get("cuda_unavailable", "no CUDA device"), ""
            unusable = devices["cuda"][0].get("unusable")
            if unusable:
                return unusable, ""
            return "", f"{self.gpus} x {devices['cuda'][0]['name']}"

        self.judge("devices", [self.dpt, "devices", "--json"], 60, accept)
