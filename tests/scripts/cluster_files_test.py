#!/usr/bin/env python3
"""Tests of docs/guide/cluster/: the program accepts each file's command, the Slurm script requeues by exit code, and
the page names each file."""

import os
import pathlib
import re
import shlex
import subprocess
import tempfile
import textwrap
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DPT = os.environ["DPT"]
FILES = sorted((ROOT / "docs" / "guide" / "cluster").iterdir())
CONFIG = (ROOT / "configs" / "digits-lenet.yaml").read_text()
# Variables that the launchers set, for one process.
VARIABLES = {
    "JOB_COMPLETION_INDEX": "0", "PET_NODE_RANK": "0", "PET_NNODES": "1", "PET_MASTER_ADDR": "localhost",
    "PET_MASTER_PORT": "29400", "SKYPILOT_NODE_RANK": "0", "SKYPILOT_NUM_NODES": "1",
    "SKYPILOT_NODE_IPS": "127.0.0.1\n127.0.0.2", "SLURM_CPUS_PER_TASK": "1", "SLURM_JOB_ID": "7",
}  # fmt: skip
# A launcher that skips its own words.
LAUNCHER = '#!/bin/sh\nwhile [ "$1" != dpt ]; do shift; done\nexec "$@"\n'
REAL = f'#!/bin/sh\nprintf "%s\\n" "$@" > words\nexec {shlex.quote(DPT)} "$@" --dry-run\n'


def script_of(path):
    """The shell commands that start a process of the run."""
    text = path.read_text()
    if path.suffix == ".sh":
        return text
    run = re.search(r"^run: \|\n((?:  .*\n)+)", text, re.MULTILINE)
    if run:
        return textwrap.dedent(run[1]).replace("cd /data\n", "")
    (command,) = re.findall(r"^ +command: \[(dpt, [^\]]*)\]", text, re.MULTILINE)
    words = [word.strip().strip('"') for word in command.split(",")]
    words = [re.sub(r"\$\((\w+)\)", lambda name: VARIABLES[name[1]], word) for word in words]
    return shlex.join(words)


class ClusterFiles(unittest.TestCase):
    def run_script(self, script, dpt):
        """Runs it in a folder with config.yaml, with stubs for the launchers and `dpt` for the program."""
        with tempfile.TemporaryDirectory() as folder:
            place = pathlib.Path(folder)
            (place / "config.yaml").write_text(CONFIG)
            (place / "bin").mkdir()
            programs = {"dpt": dpt, "scontrol": '#!/bin/sh\necho "$@" > requeued\n'}
            for name, text in {**programs, **dict.fromkeys(("torchrun", "mpirun", "srun"), LAUNCHER)}.items():
                (place / "bin" / name).write_text(text)
                (place / "bin" / name).chmod(0o755)
            sanitizers = {name: os.environ[name] for name in os.environ if name.endswith("_OPTIONS")}
            environment = {**sanitizers, **VARIABLES, "PATH": f"{place / 'bin'}:/usr/bin:/bin"}
            done = subprocess.run(
                ["bash", "-c", script], cwd=place, env=environment, capture_output=True, text=True
            )
            words = (place / "words").read_text().splitlines() if (place / "words").exists() else []
            return done, words, (place / "requeued").exists()

    def test_the_program_accepts_each_command(self):
        for path in FILES:
            with self.subTest(path.name):
                # One process: a larger world waits for the others.
                script = script_of(path).replace("--world-size 4", "--world-size 1")
                done, words, _ = self.run_script(script, REAL)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertEqual(words[:2], ["train", "config.yaml"])

    def test_slurm_requeues_what_a_restart_can_help(self):
        script = next(path for path in FILES if path.name == "slurm.sh").read_text()
        for code in (0, 2, 6, 75, 137):
            with self.subTest(code):
                done, _, requeued = self.run_script(script, f"#!/bin/sh\nexit {code}\n")
                self.assertEqual(done.returncode, code)
                self.assertEqual(requeued, code in (6, 75, 137))
        _, _, requeued = self.run_script("SLURM_RESTART_COUNT=5\n" + script, "#!/bin/sh\nexit 6\n")
        self.assertFalse(requeued)

    def test_the_page_links_to_each_file(self):
        page = (ROOT / "docs" / "guide" / "cluster.md").read_text()
        linked = set(re.findall(r"\]\(cluster/([\w.-]+)\)", page))
        self.assertEqual(linked, {path.name for path in FILES})

    def test_files_are_yaml(self):
        try:
            import yaml
        except ImportError:
            print("skipped: python3 (DPT_PYTHON) lacks yaml [in: files of clusters are YAML]")
            return
        for path in FILES:
            if path.suffix == ".yaml":
                self.assertTrue(list(yaml.safe_load_all(path.read_text())), path.name)


if __name__ == "__main__":
    unittest.main()
