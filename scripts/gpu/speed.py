"""The stages of gpu/check that measure speed: start, calls, modes, bench."""

import json
import os
import statistics
import subprocess
import sys
import time

import runs
from check import ROOT
from correctness import LENET, NO_VALIDATION
from rounds import Failed, Program, stop, survivors, take_turns


# The configurations whose calls are timed.
CALLS = ("256:tf32", "4096:bf16")


def seconds_to_first_step(check, folder):
    """From starting the program to the first step in its log, or None."""
    begin = time.monotonic()
    process = subprocess.Popen(
        [check.dpt, "train", LENET, "--devices", check.args.device, "--run-dir", str(folder)]
        + ["--max-steps", "1"],
        env=dict(check.env, XDG_CACHE_HOME=str(check.work / "start-cache")),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    log, seconds = folder / "metrics.jsonl", None
    while seconds is None and time.monotonic() - begin < min(60.0, check.left()):
        ended = process.poll() is not None
        if log.exists() and '"event":"step"' in log.read_text():
            seconds = time.monotonic() - begin
        elif ended:
            break
        time.sleep(0.002)
    try:
        process.wait(30 if seconds else 1)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    return seconds


def start_stage(check):
    """The first run chooses its kernels by timing, later ones find the choice in the cache."""
    times = [seconds_to_first_step(check, check.work / f"start-{i}") for i in range(4)]
    if None in times:
        check.note("start", "failed", f"a run had no first step: {times}")
        return
    result = {"without plan cache": times[0], "with plan cache": statistics.median(times[1:])}
    check.numbers["start"] = result
    why = ", ".join(f"{name}: {seconds:.3f} s" for name, seconds in result.items())
    again = ", ".join(f"{seconds:.3f}" for seconds in times[1:])
    check.note("start", "passed", f"{why} ({again})", sum(times))


def calls_stage(check):
    """What every call of a step takes by itself, beside its floor."""
    begin, result, problems = time.monotonic(), {}, []
    check.numbers["calls"] = result
    until = begin + check.share("calls")
    on_gpu = check.args.device != "cpu"
    for config in CALLS if on_gpu else CALLS[:1]:
        batch, _, number_type = config.partition(":")
        command = [check.dpt, "bench", LENET, *NO_VALIDATION, f"data.batch_size={batch}"]
        command += [f"train.precision={number_type if on_gpu else 'fp32'}", "--calls", "--json"]
        command += ["--devices", check.args.device, "--rounds", "5" if on_gpu else "1"]
        code, text, _ = check.run(command, until - time.monotonic())
        if code == 0:
            result[config] = json.loads(text.splitlines()[-1])
        else:
            last = (text.strip().splitlines() or ["no output"])[-1][:150]
            problems.append(f"{config}: {'out of time' if code is None else last}")
    own = dict(check.own_result(), numbers={"calls": result})
    check.say("\n".join(runs.call_lines(own)))
    why = "; ".join([f"{c}: {out['step_us']:.1f} us per step" for c, out in result.items()] + problems)
    check.note("calls", "failed" if problems else "passed", why, time.monotonic() - begin)


def modes_stage(check):
    """Seconds a step of exact mode against fast mode, and of two replicas against one."""
    device, begin, problems = check.args.device, time.monotonic(), []
    result = check.numbers["modes"] = {}
    slow = device == "cpu"
    until = begin + check.share("modes")

    def failed(_, error):
        problems.append(" ".join(str(error).split()))

    for batch in (256, 4096):

        def bench(name, devices, shards, batch=batch):
            words = [check.dpt, "bench", LENET, *NO_VALIDATION, f"data.batch_size={batch}"]
            words += [f"train.shards={shards}", "--serve", "--devices", devices]
            return Program(name, words, check.env, patience=40, until=until)

        programs = [
            bench("fast", device, "auto"),
            bench("exact", device, 8),
            bench("two replicas", f"{device},{device}", "auto"),
        ]
        try:
            good = survivors(programs, Program.start, failed)
            warm, rounds = (5, 3) if slow else (100, 9)
            good = take_turns(good, rounds, 0.2, warm, failed, until=until - 2)
            result[str(batch)] = {p.name: p.median() for p in good}
        finally:
            stop(*programs)
    lines = [
        f"batch {batch}: "
        + ", ".join(f"{name} {1e6 * seconds:.1f} us" for name, seconds in times.items())
        for batch, times in result.items()
    ]
    lines += [problem[-150:] for problem in problems]
    seconds = time.monotonic() - begin
    check.note("modes", "failed" if problems else "passed", "; ".join(lines), seconds)


MOST_CONFIGS = 2  # of bench/peers in one call


def known_configs(check):
    """The configurations that earlier calls have measured."""
    return {
        config
        for run in check.earlier
        for config, out in run["numbers"].get("bench", {}).items()
        if runs.complete(out)
    }


def bench_stage(check):
    on_gpu = check.args.device != "cpu"
    if on_gpu and not check.gpu_works():
        check.note("bench", "no GPU", "no GPU")
        return
    lacking = [module for module in ("torch", "jax") if module not in check.pythons]
    if lacking:
        check.note("bench", "not run", f"no Python here has {' and '.join(lacking)}")
        return
    begin = time.monotonic()
    numbers = check.out / "bench.json"  # There, so that it is left if this call is stopped.
    numbers.unlink(missing_ok=True)
    limit = check.share("bench")
    command = [sys.executable, ROOT / "scripts" / "bench" / "peers", "--dpt", check.dpt]
    command += ["--json", numbers, "--device", "cuda" if on_gpu else "cpu"]
    # It ends by itself, before it is stopped here.
    command += ["--minutes", f"{max(0.2, (limit - 12) / 60):.2f}"]
    known = known_configs(check)
    configs = check.args.config if on_gpu else ["256:fp32"]
    # What is not known first, else in the order asked; more than two take longer than a call.
    chosen = sorted(configs, key=lambda config: config in known)[:MOST_CONFIGS]
    for config in chosen:
        command += ["--config", config]
    command += [] if on_gpu else ["--rounds", "2", "--seconds", "0.3"]
    env = dict(
        check.env, DPT_PYTHON_TORCH=check.pythons["torch"], DPT_PYTHON_JAX=check.pythons["jax"]
    )
    # The peers bring their own libraries; dpt's search path must not lead them astray.
    env["DPT_LD_LIBRARY_PATH"] = env.pop("LD_LIBRARY_PATH")
    if "LD_LIBRARY_PATH" in os.environ:
        env["LD_LIBRARY_PATH"] = os.environ["LD_LIBRARY_PATH"]
    env["PYTHONUNBUFFERED"] = "1"
    code, text, _ = check.run(command, limit, env)
    check.say(text)
    measured = json.loads(numbers.read_text()) if numbers.exists() else {}
    numbers.unlink(missing_ok=True)
    check.numbers["bench"] = measured
    done = known | {config for config, out in measured.items() if runs.complete(out)}
    problems = [
        f"{config}: {' '.join(problem.split())[:100]}"
        for config, out in measured.items()
        for problem in out["problems"]
        if "out of time" not in problem or config not in known
    ]
    why = f"{len(done & set(configs))} of {len(configs)} configurations"
    why += "".join(f"; {problem}" for problem in problems)
    status = "passed"
    if code is None or (problems and all("out of time" in problem for problem in problems)):
        status = "timed out"
    elif problems or not measured:
        status = "failed"
        if not measured:
            why = (text.strip().splitlines() or ["no output"])[-1][:150]
    check.note("bench", status, why, time.monotonic() - begin)
