"""Writes what a comparison of bench-peers begins with: `make_inputs.py NET FOLDER`.

FOLDER/init.safetensors: weights as PyTorch's layers begin with, running statistics included.
FOLDER/patch.json: a patch for dpt's model, so that batch statistics are those of all replicas, as
those of a PyTorch that has one.
FOLDER/cifar: files in CIFAR-10's binary format, of noise around one pattern for each class, half of
them with another label: a network learns something, but its gradients do not vanish.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import save_file

from torch_models import MODELS

CLASSES, RECORDS = 10, 10000


def write_pictures(folder):
    folder.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(1)
    patterns = draw.integers(64, 192, (CLASSES, 3072))
    for name in [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]:
        labels = draw.integers(0, CLASSES, RECORDS)
        shown = np.where(draw.random(RECORDS) < 0.5, labels, draw.integers(0, CLASSES, RECORDS))
        pixels = patterns[shown] + draw.integers(-64, 64, (RECORDS, 3072), np.int16)
        records = np.concatenate([labels[:, None], pixels], axis=1).astype(np.uint8)
        records.tofile(folder / f"{name}.bin")


def main():
    net, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.manual_seed(1)
    state = MODELS[net]().state_dict()
    save_file(state, folder / "init.safetensors")
    ending = ".running_mean"
    norms = [name.removesuffix(ending) for name in state if name.endswith(ending)]
    patch = [{"change": name, "sync": True} for name in norms]
    (folder / "patch.json").write_text(json.dumps(patch))
    write_pictures(folder / "cifar")


main()
