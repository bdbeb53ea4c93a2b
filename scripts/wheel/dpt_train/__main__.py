"""Starts the program. It takes this process's place: signals, standard streams and the exit code are its own."""

import os
import sys
from pathlib import Path


def main():
    program = Path(__file__).resolve().parent / "bin" / "dpt"
    try:
        os.execv(program, ["dpt", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"dpt: error: {program} cannot be run: {error.strerror}; expected a Linux program for this "
                 "processor in a file system without noexec. Install the wheel again: "
                 "pip install --force-reinstall dpt-train")


if __name__ == "__main__":
    main()
