"""Evaluates runs of gpu/check: combines several runs, compares them with the goals, and makes their rows
of docs/gpu-results.md. A run is the content of its gpu-check.json."""

import re

# A stage with one of these results says nothing about the code.
NO_VERDICT = ("timed out", "not run", "no GPU")


def edited_sources(version):
    """What was packed without being committed. Scripts and pages do not count."""
    return [n for n in version["uncommitted"] if not n.startswith(("docs/", "scripts/"))]


def major(driver):
    """"580" of "580.95.05": two machines of one kind seldom have the same patch of the driver."""
    return driver.partition(".")[0]


def code_of(run):
    """What must be the same in two runs that are combined. Scripts and pages may have been mended
    in between."""
    version = run["version"]
    return {
        "commit": version["commit"],
        "content of the CUDA sources": version["sources"],
        "uncommitted edits": sorted(edited_sources(version)),
        "device": run["machine"]["device"],
        "major version of the driver": major(run["machine"]["driver"]),
    }


def difference(earlier, own):
    """Why two runs cannot be combined, or nothing."""
    a, b = code_of(earlier), code_of(own)
    return ", ".join(f"another {name}" for name in a if a[name] != b[name])


def combine(earlier, own):
    """One run of two: what `own` found, and what only `earlier` did. A time-out takes no pass
    back."""
    why = difference(earlier, own)
    if why:
        raise ValueError(f"the run of {earlier['date']} is of {why}")
    stages = dict(earlier["stages"])
    for name, stage in own["stages"].items():
        before = stages.get(name, {"status": "never"})
        if before["status"] == "passed" and stage["status"] in NO_VERDICT:
            continue
        if before["status"] == "failed" and stage["status"] == "passed":
            stage = dict(stage, why=f"{stage['why']} (failed in the run of {earlier['date']})")
        stages[name] = stage
    numbers = dict(earlier["numbers"])
    for name, values in own["numbers"].items():
        if name in ("bench", "modes", "calls", "ncu"):  # By configuration and by batch size.
            kept = numbers[name] = dict(numbers.get(name, {}))
            for key, value in values.items():
                if told(name, value) >= told(name, kept.get(key)):
                    kept[key] = value
        elif name not in numbers or own["stages"].get(name, {}).get("status") == "passed":
            numbers[name] = values
    calls = earlier.get("calls", [earlier["date"]]) + own.get("calls", [own["date"]])
    combined = dict(own, stages=stages, numbers=numbers, calls=calls)
    combined["rows"] = rows(combined)
    return combined


def told(name, values):
    """How much the numbers of one configuration of bench, calls or ncu, or of one batch size of modes,
    tell: those of a call that was cut off must not replace better ones."""
    if not values:
        return 0
    parts = {"bench": "programs", "calls": "calls", "ncu": "kernels"}
    return len(values[parts[name]] if name in parts else values)


def complete(out):
    """Whether a configuration of bench was measured, and a peer to compare with."""
    return "to_best_peer" in out


def bad_stages(run):
    """Stages that did not pass, but for those that this machine need not run."""
    return [
        name
        for name, stage in run["stages"].items()
        if stage["status"] != "passed" and not stage.get("expected")
    ]


def bench_lines(run):
    """(configuration, its numbers), the most important first, as they were measured."""
    return [(config, out) for config, out in run["numbers"].get("bench", {}).items()]


def differs(out):
    """Whether dpt's losses were not those of the peers, so that its times mean nothing."""
    return out["curves"].get("dpt", {}).get("agrees") is False


# Images a second that docs/internals/cuda.md asks for.
RATES = {"256:tf32": 8e6, "4096:bf16": 20e6}
# Of data sheets, dense: FLOP/s by type of product, and bytes/s of the memory.
PEAKS = {
    "H200": {"fp32": 67e12, "tf32": 494e12, "bf16": 989e12},
    "H100": {"fp32": 67e12, "tf32": 494e12, "bf16": 989e12},
    "A100": {"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12},
}


def floor_us(device, number_type, flops):
    """Microseconds that a call's products take at the data sheet's rate, or None."""
    for name, peaks in PEAKS.items():
        if name in device and flops > 0:
            return 1e6 * flops / peaks[number_type]
    return None


def call_lines(run):
    """The table of `calls`: what every call of a step takes, and its floor."""
    lines = []
    for config, out in run["numbers"].get("calls", {}).items():
        number_type = config.partition(":")[2]
        lines.append(f"{config}: {out['step_us']:.1f} us for all calls of a step in sequence")
        for call in out["calls"]:
            floor = floor_us(run["machine"]["device"], number_type, call["flops"])
            beside = f"   floor {floor:7.2f} us" if floor else ""
            lines.append(f"  {call['name']:28} {call['us']:9.2f} us{beside}")
    return lines


def probe_text(numbers):
    """The probes in a line."""
    edges = ", ".join(f"{name} {us:.2f}" for name, us in numbers["edge_us"].items())
    copy = numbers["bandwidths"][0]["gb_per_s"]["median"]
    text = f"us per dependency in a graph: {edges}; round trip {numbers['round_trip_us']:.1f} us"
    return f"{text}; copy on the device {copy:.0f} GB/s"


def probe_lines(numbers):
    """The table of the probes."""
    lines = ["Cost of launches and copies, us per call (median of the repeats, least to most):"]
    for timing in numbers["timings"]:
        device, host = timing["device_us"], timing["host_us"]
        lines.append(
            f"  {timing['name']:72} {device['median']:9.2f} ({device['least']:.2f} to "
            f"{device['most']:.2f}), enqueued by the host in {host['median']:.2f}"
        )
    for bandwidth in numbers["bandwidths"]:
        rate = bandwidth["gb_per_s"]
        lines.append(
            f"  {bandwidth['name']:72} {rate['median']:9.1f} GB/s "
            f"({rate['least']:.1f} to {rate['most']:.1f})"
        )
    return lines


def ncu_text(kernels):
    """The profiled kernels of a step in a line."""
    parts = []
    for kernel in kernels:
        name = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", kernel["kernel"])
        name = re.split(r"[<(]", name)[0].split("::")[-1].split(" ")[-1]
        parts.append(
            f"{name} {kernel.get('us', 0):.1f} us, tensor pipe "
            f"{kernel.get('tensor_pct', 0):.0f} %, {kernel.get('registers', 0):.0f} registers, "
            f"{kernel.get('shared_wavefronts', 0):.0f} shared wavefronts"
        )
    return "; ".join(parts)


def goals(run):
    """(what, goal, what was measured, whether it is met; None: not known) of docs/internals/cuda.md."""
    result = []

    def at_most(what, value, most, unit):
        text = "not measured" if value is None else f"{value:.2f} {unit}"
        met = None if value is None else value <= most
        result.append((what, f"at most {most:.2f} {unit}", text, met))

    numbers = run["numbers"]
    for batch in ("256", "4096"):
        times = numbers.get("modes", {}).get(batch, {})
        fast = times.get("fast")
        for name, what in (("exact", "exact mode (8 shards) over fast"),
                           ("two replicas", "2 replicas on one GPU over 1")):  # fmt: skip
            ratio = times[name] / fast if fast and name in times else None
            at_most(f"{what}, batch {batch}", ratio, 1.1, "times a step")
    start = numbers.get("start", {}).get("with plan cache")
    at_most("start to first step, with plan cache", start, 0.5, "s")
    for batch in ("256", "4096"):
        measured = [c for c, _ in bench_lines(run) if c.startswith(batch + ":")]
        if not measured:
            result.append((f"LeNet, batch {batch}", "at least 3x", "not measured", None))
        for config in measured:
            out = numbers["bench"][config]
            best, eager = out.get("to_best_peer"), out.get("to_torch_eager")
            goal = "at least 3x the best peer"
            met = None if best is None else best >= 3
            rate = out["programs"].get("dpt", {}).get("images_per_s")
            if config in RATES:
                goal += f", {RATES[config] / 1e6:.0f} M images/s"
                met = None if met is None or rate is None else met and rate >= RATES[config]
            if batch == "256":
                goal += ", 10x PyTorch eager"
                met = None if met is None or eager is None else met and eager >= 10
            if differs(out):
                met = None
            what = f"LeNet, batch {batch}, {config.partition(':')[2]}"
            result.append((what, goal, bench_text(config, out), met))
    return result


def bench_text(config, out):
    """A configuration in words."""
    ours = out["programs"].get("dpt")
    if not ours:
        problems = " ".join("; ".join(out["problems"]).replace("|", "/").split())
        return f"not measured: {problems[:80]}"
    rate = ours["images_per_s"]
    batch = int(config.partition(":")[0])
    text = f"{rate / 1e6:.2f} M images/s, {1e6 * batch / rate:.1f} us per step"
    if "to_best_peer" in out:
        text += f", {out['to_best_peer']:.2f}x the best peer ({out['best_peer']})"
    if "to_torch_eager" in out:
        text += f", {out['to_torch_eager']:.2f}x PyTorch eager"
    if "of_floor" in out:
        text += f", {100 * out['of_floor']:.0f} % of the floor"
    if differs(out):
        text += ", BUT ITS LOSSES DIFFER"
    return text


def rows(run):
    """The rows of the page."""
    version, machine, numbers = run["version"], run["machine"], run["numbers"]
    dirty = " and edits" if version["uncommitted"] else ""
    begin = [run["date"], machine["device"], machine["driver"]]
    begin += [f"`{version['commit'][:12]}`{dirty}"]
    result = []

    def row(what, measured, to_peer="", of_floor=""):
        result.append("| " + " | ".join([*begin, what, measured, to_peer, of_floor]) + " |")

    counted = {}
    for stage in run["stages"].values():
        counted[stage["status"]] = counted.get(stage["status"], 0) + 1
    row("stages of gpu/check", ", ".join(f"{n} {status}" for status, n in sorted(counted.items())))
    if "train" in numbers:
        row(
            "LeNet of the seed, 10 epochs",
            f"test accuracy {numbers['train']['accuracy']:.4f}, "
            f"{1000 * numbers['train']['epoch_seconds']:.1f} ms per epoch",
        )
    if "exactness" in numbers:
        status = run["stages"]["exactness"]["status"]
        row(
            "1, 2, 3, 4, 8 replicas and resumed, exact",
            f"{status}: {len(numbers['exactness'])} digests",
        )
    for name, seconds in numbers.get("start", {}).items():
        row(f"start to first step, {name}", f"{seconds:.3f} s")
    for batch, times in numbers.get("modes", {}).items():
        for name, what in (("exact", "exact (8 shards) over fast"),
                           ("two replicas", "2 replicas on one GPU over 1")):  # fmt: skip
            if "fast" in times and name in times:
                ratio = times[name] / times["fast"]
                row(f"{what}, batch {batch}", f"{ratio:.2f}x the time")
    for config, out in numbers.get("calls", {}).items():
        slowest = sorted(out["calls"], key=lambda call: -call["us"])[:3]
        words = ", ".join(f"{call['name']} {call['us']:.1f}" for call in slowest)
        what = f"calls of a step, {config.replace(':', ', ')}"
        row(what, f"{out['step_us']:.1f} us in sequence; longest: {words}")
    if "probes" in numbers:
        row("launches and copies", probe_text(numbers["probes"]))
    for config, out in numbers.get("ncu", {}).items():
        row(f"convolution kernels, {config.replace(':', ', ')}", ncu_text(out["kernels"]))
    for config, out in bench_lines(run):
        batch, _, number_type = config.partition(":")
        what = f"LeNet, batch {batch}, {number_type}"
        ours = out["programs"].get("dpt")
        if not ours or differs(out):
            row(what, bench_text(config, out))
            continue
        rate = ours["images_per_s"]
        measured = f"{rate / 1e6:.2f} M images/s, {1e6 * int(batch) / rate:.1f} us per step"
        if "to_torch_eager" in out:
            measured += f", {out['to_torch_eager']:.1f}x PyTorch eager"
        peer = f"{out['to_best_peer']:.2f}x ({out['best_peer']})" if "to_best_peer" in out else ""
        floor = f"{100 * out['of_floor']:.0f} %" if "of_floor" in out else ""
        row(what, measured, peer, floor)
    return result
