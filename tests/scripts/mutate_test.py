#!/usr/bin/env python3
"""Tests of scripts/check/mutate: all host code has test programs, none is left out in silence."""

import importlib.machinery
import importlib.util
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPT = ROOT / "scripts" / "check" / "mutate"


def load():
    sys.dont_write_bytecode = True
    loader = importlib.machinery.SourceFileLoader("mutate", str(SCRIPT))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("mutate", loader))
    loader.exec_module(module)
    return module


mutate = load()


class TestPrograms(unittest.TestCase):
    def test_all_host_code_has_test_programs(self):
        folders = [f"engine/{f.name}" for f in (ROOT / "engine").iterdir() if f.is_dir() and any(f.glob("*.cpp"))]
        self.assertGreater(len(folders), 10)
        for folder in folders + ["app", "datasets", "kernels"]:
            self.assertIn(folder, mutate.TESTS)
        for folder in ("app", "datasets", "engine", "kernels"):
            for path in (ROOT / folder).rglob("*.cpp"):
                path = path.relative_to(ROOT)
                self.assertEqual(not mutate.tests_for(path), str(path).startswith("kernels/cuda/"), path)

    def test_its_folders_and_test_programs_exist(self):
        build = (ROOT / "tests" / "CMakeLists.txt").read_text()
        known = {f.removeprefix("engine/").replace("/", "_") for f in re.findall(r"dpt_test\((\S+) ", build)}
        for folder, tests in mutate.TESTS.items():
            self.assertTrue((ROOT / folder).is_dir(), folder)
            self.assertLessEqual(set(tests.split()), known, folder)

    def test_a_folder_without_an_entry_is_an_error(self):
        for name in ("engine/nowhere/a.cpp", "engine/a.cpp", "tools/a.cpp"):
            with self.assertRaisesRegex(SystemExit, f"{name}: no test program is named for its folder"):
                mutate.tests_for(name)

    def test_code_of_other_devices_is_refused(self):
        words = [SCRIPT, "--list", "kernels/cuda/without_cuda.cpp"]
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("not host code that tests cover", done.stderr)


class Changes(unittest.TestCase):
    def test_each_changed_file_is_mutated_or_noted(self):
        mutate.changed_lines = lambda base: {
            "kernels/cuda/batch_norm.h": {1},
            "tests/kernels/flat_test.cpp": {1},
            "engine/export/facts.cpp": set(range(1, 1000)),
        }
        notes = []
        mutate.print = lambda *words, **options: notes.append(" ".join(words))
        sys.argv = [str(SCRIPT), "--base", "HEAD"]
        texts, found = mutate.chosen(mutate.parse())
        self.assertEqual([str(path) for path in texts], ["engine/export/facts.cpp"])
        self.assertTrue(found)
        self.assertEqual(notes, ["mutate: kernels/cuda/batch_norm.h: left out, because it is not host code"])


if __name__ == "__main__":
    unittest.main()
