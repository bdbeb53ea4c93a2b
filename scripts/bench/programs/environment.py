"""Where the peers' packages are."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]


def environment(script, name, packages):
    """The python of a virtual environment with the given packages, made if need be."""
    python = os.environ.get("DPT_PYTHON_" + name.upper())
    if python:
        return python
    given = os.environ.get("DPT_VENV_" + name.upper())
    folder = pathlib.Path(given) if given else ROOT / f".venv-{name}"
    python = folder / "bin" / "python"
    if given and not python.exists():
        sys.exit(f"{script}: DPT_VENV_{name.upper()}={given} has no bin/python")
    if not python.exists():
        print(f"{script}: creating {folder} with {' '.join(packages)}", file=sys.stderr)
        if subprocess.run([sys.executable, "-m", "venv", str(folder)]).returncode != 0:
            sys.exit(f"{script}: python3 -m venv failed (Debian: apt-get install python3-venv)")
    probe = "import " + ", ".join(packages)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if subprocess.run([str(python), "-c", probe], **quiet).returncode != 0:
        subprocess.run([str(python), "-m", "pip", "install", "-q", *packages], check=True)
    return str(python)
