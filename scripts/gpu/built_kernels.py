"""What scripts/gpu/kernel-resources and scripts/gpu/kernel-code have in common: the CUDA objects of a
build, the names of kernels, and lists of exceptions."""

import json
import pathlib
import shlex
import subprocess
import sys


def nvcc_entries(tool, build):
    """The entries of a build's compilation database that nvcc compiles."""
    database = build / "compile_commands.json"
    if not database.exists():
        sys.exit(f"{tool}: {database} is missing: configure the build first")
    entries = [
        entry
        for entry in json.loads(database.read_text())
        if any(pathlib.Path(word).name == "nvcc" for word in shlex.split(entry["command"])[:2])
    ]
    if not entries:
        sys.exit(f"{tool}: {build} compiles nothing with nvcc: configure it with DPT_CUDA=ON")
    return entries


def object_of(tool, entry):
    """The object file of an entry."""
    words = shlex.split(entry["command"])
    path = pathlib.Path(entry["directory"]) / words[words.index("-o") + 1]
    if not path.exists():
        sys.exit(f"{tool}: {path} is missing: build first")
    return path


def readable(names):
    """Mangled name -> name with template arguments, without our namespaces and parameters."""
    run = subprocess.run(
        ["c++filt"], input="\n".join(names), text=True, capture_output=True, check=True
    )
    result = {}
    for mangled, text in zip(names, run.stdout.splitlines()):
        text = text.replace("(anonymous namespace)::", "").replace("dpt::", "")
        depth = 0
        for i, letter in enumerate(text):
            depth += {"<": 1, ">": -1}.get(letter, 0)
            if letter == "(" and depth == 0:
                text = text[:i]
                break
        result[mangled] = text.removeprefix("void ")
    return result


def exceptions_in(tool, path):
    """The lines "WORDS  # why" of a list of exceptions, without the reasons."""
    found = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words, _, why = line.partition("#")
        if words.strip() and not why.strip():
            sys.exit(f"{tool}: {path.name}:{number}: '{line}' does not say why")
        if words.strip():
            found.append(words.strip())
    return found
