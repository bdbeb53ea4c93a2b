"""The stages of gpu/check that check correctness: tests, sanitizer, training, exactness."""

import concurrent.futures
import json
import os
import re
import shutil
import time

from check import ROOT

LENET = str(ROOT / "configs" / "lenet-fashion-mnist.yaml")
SEED_LENET = str(ROOT / "configs" / "lenet-fashion-mnist-seed.yaml")
# Trains on all samples: a benchmark needs none for validation, and then there is no best checkpoint.
NO_VALIDATION = ["data.val_split=0", "checkpoint.keep_best={}"]
LEAST_ACCURACY = 0.86  # of the seed's LeNet after its 10 epochs, which ends near 0.88
LONGEST_TESTS = ("tests:kernels", "tests:kernels_cuda", "tests:training", "tests:cli")


def judge_skips(text, gpus):
    """(skips that mean that the device was not tested, skips that are right here)."""
    wrong, right = [], []
    # The name of the test case, which follows the reason, may speak of GPUs for reasons of its own.
    for reason in re.findall(r"skipped: *(.*?)(?: \[in: .*\])?$", text, re.M):
        if "is not there (set DPT_DATA)" in reason:
            right.append(reason)
        elif re.search(r"two GPUs", reason):
            (right if gpus < 2 else wrong).append(reason)
        elif re.search(r"cuda|gpu|driver|nvidia|cudnn|cublas|nccl", reason, re.I):
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


# cuDNN makes and compiles hundreds of plans in these: they have a stage of their own.
CUDNN_CASES = "cuDNN's plans*"


def tests_stage(check):
    programs = sorted((check.work / "bin").glob("test_*"))
    programs = [program for program in programs if program.name != "test_kernels_cudnn"]
    jobs = [(p.name.replace("test_", "tests:"), [p]) for p in programs]
    for name, command in jobs:
        if name == "tests:kernels_cuda":
            command.append("-tce=" + CUDNN_CASES)
    if check.gpus >= 2:
        only = "-tc=gradients summed overlapped with backward*"
        jobs.append(("tests:nccl", [check.work / "bin" / "test_training", only]))
    elif check.gpu_works():
        check.note("tests:nccl", "not run", "one GPU: NCCL needs two", expected=True)
    else:
        check.note("tests:nccl", "no GPU", "no GPU")
    jobs.sort(key=lambda job: job[0] not in LONGEST_TESTS)
    workers = max(1, min(8, len(os.sched_getaffinity(0)) // 2))
    until = time.monotonic() + check.share("tests")

    def one(job):
        limit = min(240.0, until - time.monotonic())
        check.judge(*job, limit, lambda text: judge_tests(check, text))

    with concurrent.futures.ThreadPoolExecutor(workers) as pool:
        list(pool.map(one, jobs))


def cudnn_stage(check):
    """cuDNN's plans: made for described GPUs, and run on this one against the reference."""
    # The sanitizer, which may come after it, needs the time more.
    limit = min(150.0, check.share("cudnn"))
    programs = {"tests:kernels_cudnn": ["test_kernels_cudnn"]}
    programs["tests:cudnn_plans"] = ["test_kernels_cuda", "-tc=" + CUDNN_CASES]
    programs = {name: [check.work / "bin" / words[0], *words[1:]] for name, words in programs.items()}
    programs = {name: command for name, command in programs.items() if command[0].exists()}

    def one(name):
        check.judge(name, programs[name], limit, lambda text: judge_tests(check, text))

    with concurrent.futures.ThreadPoolExecutor(len(programs) or 1) as pool:
        list(pool.map(one, programs))


# What compute-sanitizer, or the loader on its behalf, says where the machine is the reason.
NO_SANITIZER = (
    (r"Device not supported", "it does not support this device"),
    (r"ptrace|[Oo]peration not permitted|[Pp]ermission denied|seccomp", "the sandbox forbids it"),
    (r"([Ff]ailed|[Uu]nable) to (attach|inject|launch|connect)", "the sandbox forbids it"),
    (r"[Dd]ebugger (is )?(already )?attached|debug(ging)? interface", "the sandbox forbids it"),
)


def why_no_sanitizer(text):
    """Why compute-sanitizer cannot work here, if it says so: some virtual machines lack what a
    debugger needs of the driver, and containers may forbid it. What the program under it says does
    not count, nor does anything once the tool has summed up."""
    said = [line for line in text.splitlines() if line.startswith("=========")]
    said += [line for line in text.splitlines() if "compute-sanitizer" in line]
    if any("SUMMARY" in line for line in said):
        return ""
    for pattern, why in NO_SANITIZER:
        for line in said:
            if re.search(pattern, line):
                return f"{why}; compute-sanitizer says: {line.strip('= ')[:120]}"
    return ""


# The sanitizer makes a kernel some hundred times slower: it runs the small cases, which are nearly
# all of the kernels' code. The others take minutes under it.
LARGE_CASES = (
    "*many rows*,*too large*,*more of them than*,*agree with the reference in every arithmetic*,"
    "*every number of classes*,*few and many rows and columns*,*LeNet's size*," + CUDNN_CASES
)


def find_sanitizer():
    places = [shutil.which("compute-sanitizer"), "/usr/local/cuda/bin/compute-sanitizer"]
    return next((p for p in places if p and os.path.exists(p)), None)


def sanitizer_stage(check):
    tool = find_sanitizer()
    programs = ("test_kernels", "test_kernels_cuda")
    programs = [program for program in programs if (check.work / "bin" / program).exists()]
    # sanitizer:memcheck is of test_kernels, sanitizer:memcheck:cuda of test_kernels_cuda.
    stages = {
        f"sanitizer:{kind}{program.removeprefix('test_kernels').replace('_', ':')}": (kind, program)
        for program in programs
        for kind in ("memcheck", "racecheck", "initcheck", "synccheck")
    }
    if not tool or not check.gpu_works():
        for name in stages:
            if tool:
                check.note(name, "no GPU", "no GPU")
            else:
                check.note(name, "not run", "this machine has no compute-sanitizer")
        return
    # Those that passed in an earlier call have passed: the others get their time.
    passed = {
        name
        for run in check.earlier
        for name, stage in run["stages"].items()
        if stage["status"] == "passed"
    }
    todo = [name for name in stages if name not in passed] or list(stages)
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
        command += [check.work / "bin" / program, "--duration=true", "-tce=" + LARGE_CASES]
        check.judge(name, command, limit, clean, env, why_no_sanitizer)

    with concurrent.futures.ThreadPoolExecutor(len(todo) or 1) as pool:
        list(pool.map(one, todo))


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
    why = f"test accuracy {accuracy:.4f}, {epochs[len(epochs) // 2]:.4f} s per epoch"
    check.note("train", "passed" if good else "failed", why, seconds)


def exactness_stage(check):
    digest_line = re.compile(r"^(\S.*?)  +([0-9a-f]{64}) ([0-9a-f]{64})$", re.MULTILINE)
    _, text = check.judge(
        "exactness",
        [ROOT / "scripts" / "check" / "exact", LENET],
        # Eight starts of dpt, of up to eight replicas.
        min(180.0, check.share("exactness")),
        lambda text: ("", f"{len(digest_line.findall(text))} digests, one value"),
    )
    lines = digest_line.findall(text)
    check.numbers["exactness"] = {name: digest[:16] for name, _, digest in lines}
