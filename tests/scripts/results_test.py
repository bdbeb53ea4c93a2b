#!/usr/bin/env python3
"""Tests that the table of docs/results/README.md equals the summaries and logs next to it, and that dpt still
accepts the configs it names. DPT is the program; DPT_DATA the folder of the data sets."""

import json
import os
import pathlib
import re
import statistics
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "docs" / "results"
COLUMNS = "results | accuracy | PyTorch | epochs | time | processor | commit | date | command"
DATA = pathlib.Path(os.environ.get("DPT_DATA", ROOT.parent / "shared" / "datasets"))
MAX_FILE, MAX_FOLDER = 50_000, 500_000


def rows():
    """Returns the rows of the table as dictionaries of its columns."""
    names = COLUMNS.split(" | ")
    lines = (RESULTS / "README.md").read_text().splitlines()
    begin = lines.index(f"| {COLUMNS} |") + 2
    result = []
    for line in lines[begin:]:
        if not line.startswith("|"):
            break
        result.append(dict(zip(names, (cell.strip() for cell in line.strip("|").split(" | ")))))
    return result


def folder(row):
    """Returns the folder of a row, whose first cell is [NAME](NAME/)."""
    name, link = re.fullmatch(r"\[([\w-]+)\]\(([\w-]+)/\)", row["results"]).groups()
    assert name == link, row["results"]
    return RESULTS / name


def cell_of(accuracies):
    """Returns how the table writes accuracies: 0.9312, or mean ± standard deviation (number of seeds)."""
    if not accuracies:
        return "not run"
    mean = f"{statistics.mean(accuracies):.4f}"
    if len(accuracies) == 1:
        return f"{mean} (1)"
    return f"{mean} ± {statistics.stdev(accuracies):.4f} ({len(accuracies)})"


class Results(unittest.TestCase):
    def test_accuracies_and_epochs_equal_the_summaries(self):
        self.assertGreater(len(rows()), 0)
        for row in rows():
            paths = sorted(folder(row).glob("summary-*.json"))
            summaries = [json.loads(path.read_text()) for path in paths]
            self.assertEqual({s["status"] for s in summaries}, {"ok"}, row)
            accuracies = [s["test"]["accuracy"] for s in summaries]
            self.assertEqual(row["accuracy"], cell_of(accuracies), row)
            self.assertEqual({row["epochs"]}, {str(s["epochs"]) for s in summaries}, row)

    def test_accuracies_of_pytorch_equal_its_logs(self):
        for row in rows():
            paths = sorted(folder(row).glob("torch-*.jsonl"))
            ends = [json.loads(path.read_text().splitlines()[-1]) for path in paths]
            self.assertEqual(row["PyTorch"], cell_of([e["test"]["accuracy"] for e in ends]), row)
            self.assertLessEqual({str(end["epochs"]) for end in ends}, {row["epochs"]}, row)

    def test_logs_end_with_the_accuracy_of_their_summary(self):
        logs = list(RESULTS.glob("*/metrics-*.jsonl"))
        self.assertEqual(len(logs), len(list(RESULTS.glob("*/summary-*.json"))))
        for log in logs:
            summary = log.parent / log.name.replace("metrics", "summary").replace("jsonl", "json")
            end = json.loads(log.read_text().splitlines()[-1])
            self.assertEqual(end["event"], "run_end", log)
            accuracy = json.loads(summary.read_text())["test"]["accuracy"]
            self.assertEqual(end["test"]["accuracy"], accuracy, log)

    def test_every_folder_has_a_row(self):
        folders = {path.parent for path in RESULTS.glob("*/summary-*.json")}
        self.assertEqual(folders, {folder(row) for row in rows()})

    def test_files_are_small_and_hold_no_path_of_a_machine(self):
        files = [path for path in RESULTS.rglob("*") if path.is_file()]
        self.assertLess(sum(path.stat().st_size for path in files), MAX_FOLDER)
        for path in files:
            self.assertLess(path.stat().st_size, MAX_FILE, path)
            self.assertNotRegex(path.read_text(), r'"/|/(home|tmp|root|work)/', path)

    def test_dpt_accepts_the_configs(self):
        unread = set()
        for row in rows():
            (name,) = re.findall(r"configs/([\w-]+)\.yaml", row["command"])
            config = ROOT / "configs" / f"{name}.yaml"
            for command in ("show", "check"):
                done = subprocess.run(
                    [os.environ["DPT"], "config", command, config],
                    env=dict(os.environ, DPT_DATA=str(DATA)), capture_output=True, text=True,
                )  # fmt: skip
                if command == "check" and re.search(r"no such (file|folder)", done.stderr, re.I):
                    unread.add(name)
                    continue
                self.assertEqual(done.returncode, 0, done.stderr)
        for name in sorted(unread):
            print(f"skipped: the data of {name} is not there (set DPT_DATA) [in: config check]")


if __name__ == "__main__":
    unittest.main()
