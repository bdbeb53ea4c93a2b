"""The rows of docs/gpu-results.md that follow from what gpu-check measured."""


def rows(run):
    """What a run of gpu-check measured; `run` is the content of its gpu-check.json."""
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
    row("stages of gpu-check", ", ".join(f"{n} {status}" for status, n in sorted(counted.items())))
    if "train" in numbers:
        row(
            "LeNet of the seed, 10 epochs",
            f"test accuracy {numbers['train']['accuracy']:.4f}, "
            f"{1000 * numbers['train']['epoch_seconds']:.1f} ms an epoch",
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
        row(
            f"exact (8 shards) over fast, batch {batch}",
            f"{times['exact'] / times['fast']:.2f}x the time",
        )
        ratio = times["two replicas"] / times["fast"]
        row(f"2 replicas on one GPU over 1, batch {batch}", f"{ratio:.2f}x the time")
    for config, out in numbers.get("bench", {}).items():
        batch, _, number_type = config.partition(":")
        ours = out["programs"].get("dpt")
        if not ours:
            row(
                f"LeNet, batch {batch}, {number_type}",
                "not measured: "
                + " ".join("; ".join(out["problems"]).replace("|", "/").split())[:80],
            )
            continue
        rate = ours["images_per_s"]
        measured = f"{rate / 1e6:.2f} M images/s, {1e6 * int(batch) / rate:.1f} us a step"
        peer = f"{out['to_best_peer']:.2f}x ({out['best_peer']})" if "to_best_peer" in out else ""
        floor = f"{100 * out['of_floor']:.0f} %" if "of_floor" in out else ""
        row(f"LeNet, batch {batch}, {number_type}", measured, peer, floor)
    return result
