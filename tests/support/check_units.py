#!/usr/bin/env python3
"""Checks that sources can be read one by one: a unit is NAME.h (NAME.cuh) with its NAME.cpp (NAME.cu).

  python3 tests/support/check_units.py ROOT

Fails on a circle of includes between units, and on a source without a header of its name that no rule below explains.
"""

import pathlib
import re
import sys

FOLDERS = ("app", "datasets", "engine", "kernels")
# Sources whose header has another name, and why.
WITHOUT_HEADER = {
    r"app/main\.cpp": "the program",
    r"(datasets/tools|kernels/bench)/\w+\.cpp": "programs",
    r"app/cli/cli_\w+_commands\.cpp": "the command line of app/cli/cli_options.h, by subject",
    r"app/help/completion_\w+\.cpp": "one source per shell of app/help/completion.h",
    r"app/config/starter_(csv|npy)\.cpp": "one source per kind of app/config/starter_data.h",
    r"app/report/page_\w+\.cpp": "one source per part of app/report/page.h",
    r"(datasets|engine/\w+)/registry\.cpp": "the registry of its folder's kinds.h",
    r"engine/processes/control_server_peers\.cpp": "the part of ControlServer before the world is complete",
    r"kernels/(\w+/)+\w+_(avx2|avx512|avx512bf16|vnni|bf16|bf16_odd|f32|tf32)\.(cpp|cu)": "compiled for one instruction set or type",
    r"kernels/(\w+/)+without_\w+\.cpp": "takes the place of sources that a build lacks",
    r"kernels/image/(bmp|gif|png|pnm|tiff|webp|jpeg/jpeg)\.cpp": "one source per format of kernels/image/decoders.h",
    r"kernels/cpu/backend\.cpp": "kernels/backend.h, on the CPU",
    r"kernels/cuda/conv/image_weights\.cu": "the backward pass of image_conv.h",
    r"kernels/cuda/conv/padded_conv\.cu": "a kind of plan of conv_plan.h",
    r"kernels/cuda/runtime/nccl\.cpp": "kernels/peer_sums.h, with NCCL",
}
# What a source defines for a kinds.h, or for the ops.h of a backend.
LISTED = re.compile(
    r"^((\w+Kind|std::vector<ZooNet>) \w+\(\) \{$|std::unique_ptr<\w+> make_(cpu|cuda)_(op|loss_op|input)\()", re.MULTILINE
)


def unit_of(path):
    return re.sub(r"\.(cpp|cuh|cu|h)$", "", path)


def circles(graph):
    """The strongly connected components of more than one unit (Tarjan, 1972)."""
    index, low, stack, found = {}, {}, [], []

    def visit(unit):
        index[unit] = low[unit] = len(index)
        stack.append(unit)
        for other in graph.get(unit, ()):
            if other not in index:
                visit(other)
                low[unit] = min(low[unit], low[other])
            elif other in stack:
                low[unit] = min(low[unit], index[other])
        if low[unit] == index[unit]:
            at = stack.index(unit)
            if len(stack) - at > 1:
                found.append(sorted(stack[at:]))
            del stack[at:]

    for unit in sorted(graph):
        if unit not in index:
            visit(unit)
    return found


def main(root):
    sys.setrecursionlimit(10000)
    files = [
        path.relative_to(root).as_posix()
        for folder in FOLDERS
        for path in sorted((root / folder).rglob("*"))
        if path.suffix in (".cpp", ".cu", ".cuh", ".h")
    ]
    if not files:
        sys.exit(f"check_units: no sources below {root}")
    graph, listed = {}, set()
    for file in files:
        text = (root / file).read_text(encoding="utf-8")
        includes = re.findall(r'^\s*#\s*include "([^"]+)"', text, re.MULTILINE)
        if LISTED.search(text):
            listed.add(file)
        graph.setdefault(unit_of(file), set()).update(unit_of(each) for each in includes)
    for unit, others in graph.items():
        others.discard(unit)
    problems = [f"these include each other: {', '.join(circle)}" for circle in circles(graph)]
    rules = {re.compile(rule): why for rule, why in WITHOUT_HEADER.items()}
    used = set()
    for file in files:
        if not file.endswith((".cpp", ".cu")) or file in listed:
            continue
        if any((root / f"{unit_of(file)}.{end}").exists() for end in ("h", "cuh")):
            continue
        rule = next((rule for rule in rules if rule.fullmatch(file)), None)
        used.add(rule)
        if rule is None:
            problems.append(f"{file}: no {unit_of(file)}.h; name the header after its source")
    problems += [f"check_units.py: no source is like {rule.pattern}: remove the rule" for rule in rules if rule not in used]
    if problems:
        sys.exit("\n".join(problems) + f"\n{len(problems)} problems (CONTRIBUTING.md, Folders)")
    print(f"{len(files)} files in {len(graph)} units, no circles")


main(pathlib.Path(sys.argv[1]).resolve())
