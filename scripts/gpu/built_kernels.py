"""Shared by scripts/gpu/kernel-resources, kernel-code and convolution-plans: the CUDA objects of a build, the
machine code (SASS) of objects, the names of kernels, and lists of exceptions."""

import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys

INSTRUCTION = re.compile(r"^\s+/\*([0-9a-f]+)\*/\s+(?:@!?U?P\w+\s+)?([A-Z]\S*)\s*(.*?)\s*;")


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


def cuobjdump_for(tool):
    """The path of cuobjdump."""
    path = os.environ.get("CUOBJDUMP") or shutil.which("cuobjdump")
    if not path:
        sys.exit(f"{tool}: cuobjdump is missing: it is part of the CUDA toolkit; set CUOBJDUMP to it")
    return path


def kernels_of(cuobjdump, path):
    """The kernels of an object or a cubin, as kernels_in returns them."""
    run = subprocess.run([cuobjdump, "-sass", str(path)], text=True, capture_output=True)
    if run.returncode != 0:
        sys.exit(f"{cuobjdump} -sass {path} failed: {run.stderr.strip()}")
    return list(kernels_in(run.stdout))


def kernels_in(sass):
    """(architecture, mangled name, [(address, operation, operands)]) of each kernel."""
    architecture, name, code = "", None, []
    for line in sass.splitlines():
        if found := re.match(r"arch = (\S+)", line):
            architecture = found[1]
        if found := re.match(r"\s+Function : (\S+)", line):
            if name:
                yield kept, name, code
            kept, name, code = architecture, found[1], []
        if found := INSTRUCTION.match(line):
            code.append((int(found[1], 16), found[2], found[3]))
    if name:
        yield kept, name, code


def adds_floats_atomically(operation):
    """True if the instruction adds floating-point numbers atomically. A TMA instruction that adds does not show
    the type of the numbers, so it counts, too."""
    kind = operation.split(".")[0]
    if kind == "UTMAREDG":
        return ".ADD" in operation
    return kind in ("RED", "REDG", "ATOM", "ATOMG", "ATOMS", "UBLKRED") and bool(
        re.search(r"\.B?F\d\d", operation)
    )


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
