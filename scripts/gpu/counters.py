"""The stages of gpu/check that look inside: probes (what launches, dependencies and copies cost on this
machine) and ncu (hardware counters of the convolution kernels of a step of LeNet)."""

import csv
import glob
import json
import os
import re
import shutil
import time

import runs
from correctness import LENET, NO_VALIDATION

# ---- probes ----


def judge_probes(text):
    """(what is wrong with the output of gpu_probes, what to note, its numbers)"""
    try:
        numbers = json.loads(text.strip().splitlines()[-1])
        times = [t["device_us"]["median"] for t in numbers["timings"]]
        rates = [b["gb_per_s"]["median"] for b in numbers["bandwidths"]]
        numbers["edge_us"]["full"], numbers["round_trip_us"]  # Both must be there.
    except (IndexError, KeyError, TypeError, ValueError) as error:
        return f"its output is not what was expected: {type(error).__name__}: {error}", "", None
    if not times or not rates or min(times + rates) <= 0:
        return "a time or a bandwidth is missing or not positive", "", numbers
    return "", runs.probe_text(numbers), numbers


def probes_stage(check):
    program = check.work / "bin" / "gpu_probes"
    if not program.exists():
        check.note("probes", "not run", "the pack has no gpu_probes: it was built without CUDA")
        return
    if not check.gpu_works():
        check.note("probes", "no GPU", "no GPU")
        return
    found = {}

    def accept(text):
        problem, why, found["numbers"] = judge_probes(text)
        return problem, why

    good, _ = check.judge("probes", [program], min(60.0, check.share("probes")), accept)
    if good:
        check.numbers["probes"] = found["numbers"]
        check.say("\n".join(runs.probe_lines(found["numbers"])))


# ---- ncu ----

CONFIGS = ("256:tf32", "4096:bf16")
# In the order of their launches in a step: both forward passes, then backward.
CONVOLUTIONS = 5
KERNELS = "regex:^(conv_gemm|image_conv|image_weights)$"
# Our name -> those of ncu, of which GPUs and versions have different ones. A group without a number in
# a kernel makes the stage fail, unless it is optional.
METRICS = {
    "us": ("gpu__time_duration.sum",),
    "registers": ("launch__registers_per_thread",),
    "shared_bytes": ("launch__shared_mem_per_block_dynamic",),
    "waves": ("launch__waves_per_multiprocessor",),
    "tensor_pct": (
        "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__pipe_tensor_op_hmma_cycles_active.avg.pct_of_peak_sustained_active",
        "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
    ),
    "tensor_instructions": (
        "sm__inst_executed_pipe_tensor_op_hmma.sum",
        "sm__inst_executed_pipe_tensor.sum",
    ),
    "shared_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared.sum",),
    "shared_load_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",),
    "shared_store_wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum",),
    "bank_conflicts": ("l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum",),
    "instructions": ("smsp__inst_executed.sum",),
    "issue_pct": ("smsp__issue_active.avg.pct_of_peak_sustained_active",),
    "warps_pct": ("sm__warps_active.avg.pct_of_peak_sustained_active",),
    "sm_cycles": ("sm__cycles_elapsed.max",),
}
REQUIRED = ("us", "registers", "tensor_pct", "shared_wavefronts")
# What ncu says where the machine is the reason, in its own lines.
NO_NCU = (
    (r"ERR_NVGPUCTRPERM|permission to access", "the driver does not permit hardware counters"),
    (r"[Ff]ailed to initialize the profiler|LibraryNotLoaded", "the profiler does not work here"),
    (r"[Pp]rofiling is not supported|not supported on this|Device not supported",
     "profiling is not supported on this device"),
    (r"ptrace|[Oo]peration not permitted|[Pp]ermission denied", "the sandbox forbids it"),
    (r"[Ff]ailed to (connect|attach|inject|launch)", "the sandbox forbids it"),
    (r"([Rr]esource|[Dd]river).*unavailable|another (tool|instance)", "the counters are in use"),
)  # fmt: skip


def own_lines(text):
    """What ncu itself says, without the program's output."""
    return [line for line in text.splitlines() if re.match(r"==(ERROR|WARNING)==|ncu:", line)]


def why_no_ncu(text):
    """Why ncu cannot read counters on this machine, if it says so and gave none."""
    if parse_csv(text):
        return ""
    for pattern, why in NO_NCU:
        for line in own_lines(text):
            if re.search(pattern, line):
                return f"{why}; ncu says: {line.strip('= ')[:120]}"
    return ""


def number(text):
    """The value of a cell, which may have thousands separators; None for n/a."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def parse_csv(text):
    """A dictionary for each profiled launch of the CSV that is somewhere in the output: kernel, grid,
    block, and the metrics by ncu's names. Takes the page `raw`, with a column per metric and a row of
    units, and the page `details`, with a row per metric."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID",')), None)
    if begin is None:
        return []
    launches = {}
    for row in csv.DictReader(line for line in lines[begin:] if line.startswith('"')):
        if not row["ID"].strip():  # The row of units.
            continue
        launch = launches.setdefault(
            row["ID"],
            {
                "kernel": row.get("Kernel Name") or "",
                "grid": row.get("Grid Size") or "",
                "block": row.get("Block Size") or "",
                "metrics": {},
            },
        )
        if "Metric Name" in row:
            launch["metrics"][row["Metric Name"]] = number(row["Metric Value"] or "")
        else:
            launch["metrics"].update(
                (name, number(value or "")) for name, value in row.items() if name and "__" in name
            )
    return list(launches.values())


def kernels_of(launches):
    """The launches with our names for the metrics."""
    result = []
    for launch in launches:
        own = {"kernel": launch["kernel"], "grid": launch["grid"], "block": launch["block"]}
        for name, metrics in METRICS.items():
            values = [launch["metrics"].get(metric) for metric in metrics]
            value = next((value for value in values if value is not None), None)
            if value is not None:
                # Times are in nanoseconds (--print-units base).
                own[name] = value / 1000 if name == "us" else value
        result.append(own)
    return result


def judge_ncu(text):
    """(what is wrong with the output of ncu, what to note, the kernels)"""
    kernels = kernels_of(parse_csv(text))
    if len(kernels) != CONVOLUTIONS:
        said = [line for line in own_lines(text)][:1]
        what = f"{len(kernels)} launches were profiled, expected {CONVOLUTIONS}"
        return what + "".join(f"; ncu says: {line.strip('= ')[:120]}" for line in said), "", kernels
    lacking = sorted({name for kernel in kernels for name in REQUIRED if name not in kernel})
    if lacking:
        return f"ncu gave no number for {', '.join(lacking)}", "", kernels
    return "", runs.ncu_text(kernels), kernels


def unknown_metrics(text):
    """Those of METRICS that ncu complains about: another version may not know them."""
    said = "\n".join(own_lines(text))
    names = [metric for metrics in METRICS.values() for metric in metrics]
    return {name for name in names if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", said)}


def find_ncu():
    places = [shutil.which("ncu"), "/usr/local/cuda/bin/ncu"]
    for pattern in ("/opt/nvidia/nsight-compute/*/ncu", "/usr/local/cuda/nsight-compute*/ncu"):
        places += sorted(glob.glob(pattern), reverse=True)
    return next((place for place in places if place and os.access(place, os.X_OK)), None)


def ncu_stage(check):
    tool = find_ncu()
    until = time.monotonic() + check.share("ncu")
    result = check.numbers.setdefault("ncu", {})
    for config in CONFIGS:
        stage = f"ncu:{config}"
        if not tool:
            check.note(stage, "not run", "this machine has no ncu")
        elif not check.gpu_works():
            check.note(stage, "no GPU", "no GPU")
        else:
            profile(check, tool, stage, config, until, result)


def profile(check, tool, stage, config, until, result):
    """One configuration: a run without ncu, which leaves the choice of kernels in the plan cache, so
    that the first launches of the next one are those of the first step; then five of them under ncu."""
    begin = time.monotonic()
    batch, _, number_type = config.partition(":")
    step = [check.dpt, "bench", LENET, *NO_VALIDATION, f"data.batch_size={batch}"]
    step += [f"train.precision={number_type}", "--devices", check.args.device]
    step += ["--steps", "2", "--rounds", "1"]
    code, text, _ = check.run(step, min(60.0, until - begin))
    if code != 0:
        status = "timed out" if code is None else "failed"
        last = (text.strip().splitlines() or ["no output"])[-1][:150]
        check.note(stage, status, f"without ncu: {last}", time.monotonic() - begin)
        return
    dropped = set()
    while True:
        wanted = [metric for metrics in METRICS.values() for metric in metrics if metric not in dropped]
        # The clocks are left as they are: the machine may be shared.
        command = [tool, "--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none"]
        command += ["--kernel-name", KERNELS, "--launch-count", str(CONVOLUTIONS)]
        command += ["--metrics", ",".join(wanted), *step]
        code, text, _ = check.run(command, min(90.0, until - time.monotonic()))
        unknown = unknown_metrics(text) - dropped
        if code is None or parse_csv(text) or not unknown:
            break
        dropped |= unknown
    problem, why, kernels = judge_ncu(text)
    if kernels:
        result[config] = {"kernels": kernels, "unknown_metrics": sorted(dropped)}
    seconds = time.monotonic() - begin
    if code is None:
        check.note(stage, "timed out", f"stopped after {seconds:.0f} s", seconds)
    elif why_no_ncu(text):
        check.note(stage, "not run", why_no_ncu(text), seconds)
    elif problem or code != 0:
        check.note(stage, "failed", problem or f"exit code {code}", seconds)
    else:
        check.note(stage, "passed", why, seconds)
