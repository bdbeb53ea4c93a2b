#!/usr/bin/env python3
"""Checks that no object file compiled for one instruction set shares a function with another:
`check_instruction_sets.py OBJECTS`, the folder with the object files of the kernels.

The linker keeps one copy of a function that several object files define (templates, inline functions).
A copy with wide instructions would then run on processors without them.
"""

import collections
import pathlib
import re
import subprocess
import sys

KIND = re.compile(r"_(avx2|avx512|avx512bf16|vnni)\.cpp\.o$")


def shared_functions(folder):
    """The functions that objects of different instruction sets define, with the names of these objects."""
    owners = collections.defaultdict(dict)
    for path in sorted(folder.rglob("*.o")):
        kind = KIND.search(path.name)
        command = ["nm", "--defined-only", "--demangle", path]
        table = subprocess.run(command, check=True, capture_output=True, text=True)
        for line in table.stdout.splitlines():
            words = line.split(maxsplit=2)
            if len(words) == 3 and words[1] in "Ww":
                owners[words[2]][kind.group(1) if kind else ""] = path.name
    return {name: kinds for name, kinds in owners.items() if len(kinds) > 1}


def main():
    folder = pathlib.Path(sys.argv[1])
    count = sum(1 for path in folder.rglob("*.o") if KIND.search(path.name))
    shared = shared_functions(folder)
    for name, kinds in sorted(shared.items()):
        print(f"{', '.join(kinds.values())} share {name}; make it a template over the vector type of the file")
    print(f"{count} object files for instruction sets, {len(shared)} shared functions")
    sys.exit(1 if shared or count == 0 else 0)


if __name__ == "__main__":
    main()
