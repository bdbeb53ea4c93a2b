#!/usr/bin/env python3
"""Tests that the program knows every `key=value` that docs/start/coming-from.md gives as dpt's."""

import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DPT = os.environ["DPT"]
CONFIG = """\
version: 1
data: {dataset: image_folder, root: photos, batch_size: 32}
model: {zoo: resnet18, input: [3, 32, 32], classes: 3}
optimizer: {type: SGD, lr: 0.1}
train: {epochs: 30}
"""


def overrides():
    """Those of the last column of each table."""
    page = (ROOT / "docs" / "start" / "coming-from.md").read_text()
    cells = [line.rstrip("| ").rsplit(" | ", 1)[-1] for line in page.splitlines() if line.startswith("| ")]
    spans = [span for cell in cells for span in re.findall(r"`([^`]+)`", cell)]
    return sorted({span for span in spans if re.match(r"[a-z_.]+=", span)})


class ComingFrom(unittest.TestCase):
    def test_every_override_is_accepted(self):
        self.assertGreater(len(overrides()), 50)
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder, "config.yaml")
            config.write_text(CONFIG)
            for override in overrides():
                with self.subTest(override):
                    # `show` opens neither the data nor a network.
                    done = subprocess.run([DPT, "config", "show", config, override], capture_output=True, text=True)
                    self.assertEqual(done.returncode, 0, done.stderr)


if __name__ == "__main__":
    unittest.main()
