"""The stages of gpu-check that say whether dpt is right: tests, sanitizer, training, exactness."""

import concurrent.futures
import json
import os
import re
import shutil
import time

from check import ROOT

LENET = str(ROOT / "configs" / "lenet-fashion-mnist.yaml")
SEED_LENET = str(ROOT / "configs" / "lenet-fashion-mnist-seed.yaml")
LEAST_ACCURACY = 0.86  # of the seed's LeNet after its 10 epochs, which ends near 0.88
LONGEST_TESTS = ("tests:kernels", "tests:kernels_cuda", "tests:training", "tests:cli")


def judge_skips(text, gpus):
    """(skips that mean that the device was not tested, skips that are right here)."""
    wrong, right = [], []
    for reason in re.findall(r"skipped: *(.*)", text):
        if "is not there (set DPT_DATA)" in reason:
            right.append(reason)
        elif re.search(r"two GPUs", reason):
            (right if gpus < 2 else wrong).append(reason)
        elif re.search(r"cuda|gpu|\bcards?\b|driver|nvidia|cudnn|cublas|nccl", reason, re.I):
            wrong.append(reason)
        else:  # Something of the machine: a processor without AVX2, no small file system, ...
            right.append(reason)
    return wrong, right


def judge_tests(check, text):
    """What is wrong with the output of a test program that said it passed, and what to note."""
    count = re.search(r"test cases: +(\d+) \| +(\d+) passed", text)
    if not count or int(count[2]) == 0:
        return "no test case ran", ""
    wrong, right = judge_skips(text, check.gpus)
    if wrong:
        return f"{len(wrong)} skipped: {wrong[0].strip()[:120]}", ""
    if not check.gpu_works():
        return "passed, but on the CPU alone", ""
    return "", f"{count[2]} cases" + "".join(f"; skipped: {reason.strip()}" for reason in right)


def tests_stage(check):
    programs = sorted((check.work / "bin").glob("test_*"))
    jobs = [(p.name.replace("test_", "tests:"), [p]) for p in programs]
    if check.gpus >= 2:
        only = "-tc=gradients summed beside backward*"
        jobs.append(("tests:nccl", [check.work / "bin" / "test_training", only]))
    elif check.gpu_works():
        check.note("tests:nccl", "not run", "one GPU: NCCL needs two", expected=True)
    else:
        check.note("tests:nccl", "no GPU", "no GPU")
    jobs.sort(key=lambda job: job[0] not in LONGEST_TESTS)
    workers = max(1, min(8, len(os.sched_getaffinity(0)) // 2))
    until = time.monotonic() + check.share("tests")

    def one(job):
        limit = min(180.0, until - time.monotonic())
        check.judge(*job, limit, lambda text: judge_tests(check, text))

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, jobs))


def why_no_sanitizer(text):
    """Why compute-sanitizer cannot work here, if it says so: some virtual machines have not what a
    debugger needs of the driver."""
    found = re.search(r".*Device not supported.*", text)
    return "compute-sanitizer says: " + found[0].strip("= ")[:120] if found else ""


def sanitizer_stage(check):
    places = [shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer"]
    tool = next((p for p in places if p and os.path.exists(p)), None)
    programs = ("test_kernels", "test_kernels_cuda")
    programs = [program for program in programs if (check.work / "bin" / program).exists()]
    # sanitizer:memcheck is of test_kernels, sanitizer:memcheck:cuda of test_kernels_cuda.
    stages = {
        f"sanitizer:{kind}{program.removeprefix('test_kernels').replace('_', ':')}": (kind, program)
        for program in programs
        for kind in ("memcheck", "racecheck", "initcheck")
    }
    if not tool or not check.gpu_works():
        for name in stages:
            if tool:
                check.note(name, "no GPU", "no GPU")
            else:
                check.note(name, "not run", "there is no compute-sanitizer here")
        return
    _, help_text, _ = check.run([tool, "--help"], 20)
    # Ours alone: NVIDIA's kernels do what is taken for mistakes, and take long.
    ours = ["--kernel-name" if "--kernel-name" in help_text else "--filter", "kns=dpt"]
    # Calls that fail are no finding: tests ask for failures, libraries for what an older driver may
    # not have, and the code looks at every status itself.
    ours += ["--report-api-errors", "no"]
    env = dict(check.env, DPT_TEST_BACKENDS="cuda:0", OMP_NUM_THREADS="1")
    limit = check.share("sanitizer")

    def clean(text):
        summary = re.findall(r"(?:ERROR|RACECHECK) SUMMARY: (\d+)", text)
        if not summary:
            return "it printed no summary", ""
        if set(summary) != {"0"}:
            return f"{' + '.join(summary)} errors or hazards, see the log", ""
        # A tool that could not start the program prints a clean summary too.
        return judge_tests(check, text)

    def one(name):
        kind, program = stages[name]
        command = [tool, "--tool", kind, "--error-exitcode", "9", *ours]
        command += [check.work / "bin" / program, "--duration=true"]
        check.judge(name, command, limit, clean, env, why_no_sanitizer)

    with concurrent.futures.ThreadPoolExecutor(len(stages) or 1) as pool:
        list(pool.map(one, stages))


def train_stage(check):
    folder = check.work / "seed"
    command = [check.dpt, "train", SEED_LENET, "--devices", check.args.device, "--run-dir", folder]
    code, text, seconds = check.run(command, min(90.0, check.share("train")))
    if code != 0:
        status = "timed out" if code is None else "failed"
        why = f"exit code {code}: {(text.splitlines() or ['no output'])[-1][:150]}"
        check.note("train", status, why, seconds)
        return
    events = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    epochs = sorted(e["seconds"] for e in events if e["event"] == "epoch")
    accuracy = json.loads((folder / "summary.json").read_text())["test"]["accuracy"]
    check.numbers["train"] = {
        "accuracy": accuracy,
        "epoch_seconds": epochs[len(epochs) // 2],
        "epochs": len(epochs),
        "seconds": seconds,
    }
    good = accuracy >= LEAST_ACCURACY
    why = f"test accuracy {accuracy:.4f}, {epochs[len(epochs) // 2]:.4f} s an epoch"
    check.note("train", "passed" if good else "failed", why, seconds)


def exactness_stage(check):
    digest_line = re.compile(r"^(\S.*?)  +([0-9a-f]{64}) ([0-9a-f]{64})$", re.MULTILINE)
    _, text = check.judge(
        "exactness",
        [ROOT / "scripts" / "check-exact", LENET],
        min(90.0, check.share("exactness")),
        lambda text: ("", f"{len(digest_line.findall(text))} digests, one value"),
    )
    lines = digest_line.findall(text)
    check.numbers["exactness"] = {name: digest[:16] for name, _, digest in lines}
