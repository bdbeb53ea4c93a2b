"""Adds the licences of a wheel's libraries to it, and lists the libraries.

The wheel has copies of libraries of Debian's or Ubuntu's packages. Each package's copyright file goes into
dist-info/licenses; the list (--list) is JSON: [{"library", "package", "version", "source"}], with "purl" instead of
"source" for software that no distribution packages.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from auditwheel import lddtree


# Packages whose code the compiler makes a part of the program.
COMPILED_IN = ("nlohmann-json3-dev", "libcli11-dev", "libasio-dev", "libjs-chart.js")

# Name of the CUDA runtime, which is NVIDIA's and linked into programs for GPUs.
CUDA_RUNTIME = "cuda-runtime"
CUDA_RUNTIME_LICENCE = """\
The program contains the CUDA runtime (libcudart_static), copyright NVIDIA Corporation, which NVIDIA distributes
under the End User License Agreement of the CUDA Toolkit: https://docs.nvidia.com/cuda/eula/
"""


def output_of(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def package_of(path):
    """The package (for several architectures: NAME:ARCHITECTURE) that installed `path`, which may lie behind
    the symbolic link /lib -> /usr/lib."""
    real = os.path.realpath(path)
    for name in (real, real.removeprefix("/usr")):
        found = subprocess.run(["dpkg", "-S", name], capture_output=True, text=True)
        for line in found.stdout.splitlines():
            # dpkg also reports diversions by other packages.
            if not line.startswith("diversion by "):
                return line.split(": ")[0]
    sys.exit(f"licences: {path}: expected a library of a Debian package, found none that has it")


def libraries_of(program):
    """Name -> path of every library of `program`, which may be a program for another processor."""
    libraries = lddtree.ldd(pathlib.Path(program)).libraries
    return {name: library.path for name, library in libraries.items() if library.path}


def describe(library, package):
    form = "${Version}\t${source:Package}"
    version, source = output_of("dpkg-query", "-W", "-f", form, package).split("\t")[:2]
    return {"library": library, "package": package.split(":")[0], "version": version, "source": source}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("wheel", type=pathlib.Path)
    parser.add_argument("--program", required=True, help="the program as it was built, with the system's libraries")
    parser.add_argument("--own", required=True, type=pathlib.Path, help="licence of the program")
    parser.add_argument("--cuda", metavar="VERSION", help="CUDA runtime in the program")
    parser.add_argument("--list", required=True, type=pathlib.Path, help="JSON file to write")
    parser.add_argument("--output", required=True, type=pathlib.Path, help="folder of the new wheel")
    options = parser.parse_args()

    paths = libraries_of(options.program)
    listed = []
    with tempfile.TemporaryDirectory() as scratch:
        output_of(sys.executable, "-m", "wheel", "unpack", "--dest", scratch, str(options.wheel))
        root = next(pathlib.Path(scratch).iterdir())
        info = next(root.glob("*.dist-info"))
        licences = info / "licenses"
        licences.mkdir(exist_ok=True)
        (licences / "LICENSE").write_text(options.own.read_text())
        names = ["LICENSE"]
        for copy in sorted(root.glob("*.libs/*.so*")):
            # auditwheel writes libz-6ae92ced.so.1.2.13 for libz.so.1.
            stem = re.sub(r"-[0-9a-f]{8}(?=\.)", "", copy.name, count=1)
            if stem.startswith("libjbig"):
                continue  # scripts/wheel/without_jbig.c
            library = next((name for name in paths if stem == name or stem == os.path.basename(
                os.path.realpath(paths[name]))), None)
            if library is None:
                sys.exit(f"licences: {copy.name}: expected one of the program's libraries, found {sorted(paths)}")
            listed.append(describe(library, package_of(paths[library])))
        listed += [describe("compiled in", package) for package in COMPILED_IN]
        for package in sorted({entry["package"] for entry in listed}):
            text = pathlib.Path("/usr/share/doc", package, "copyright")
            (licences / f"{package}.txt").write_bytes(text.read_bytes())
            names.append(f"{package}.txt")
        if options.cuda:
            listed.append({"library": "compiled in", "package": CUDA_RUNTIME, "version": options.cuda,
                           "purl": f"pkg:generic/{CUDA_RUNTIME}@{options.cuda}"})
            (licences / f"{CUDA_RUNTIME}.txt").write_text(CUDA_RUNTIME_LICENCE)
            names.append(f"{CUDA_RUNTIME}.txt")
        metadata = info / "METADATA"
        lines = "".join(f"License-File: {name}\n" for name in names)
        head, colon, body = metadata.read_text().partition("License-Expression: MIT\n")
        if not colon:
            sys.exit(f"licences: {metadata.name}: expected a line 'License-Expression: MIT', found none")
        metadata.write_text(head + colon + lines + body)
        options.output.mkdir(exist_ok=True)
        output_of(sys.executable, "-m", "wheel", "pack", "--dest-dir", str(options.output), str(root))
    options.list.write_text(json.dumps(listed, indent=1) + "\n")


if __name__ == "__main__":
    main()
