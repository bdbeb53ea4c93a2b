"""Writes what a comparison of bench/peers begins with: `make_inputs.py NET FOLDER`.

FOLDER/init.safetensors: weights as PyTorch's layers begin with, running statistics included.
FOLDER/patch.json: a patch for dpt's model, so that batch statistics are those of all replicas, as
those of a PyTorch that has one, and nothing is dropped, because every program draws other numbers.
FOLDER/data: files in CIFAR-10's binary format, or IDX files of larger pictures: noise around one
pattern for each class, half of them with another label: a network learns something, but its
gradients do not vanish.
"""

import json
import pathlib
import sys

import numpy as np
import torch
from safetensors.torch import save_file

from nets import SIDE
from torch_models import MODELS

CLASSES, RECORDS, LARGE_PICTURES = 10, 10000, 512


def draw_pictures(draw, patterns, count):
    """`count` labels, and the pixels of a picture for each."""
    labels = draw.integers(0, CLASSES, count)
    shown = np.where(draw.random(count) < 0.5, labels, draw.integers(0, CLASSES, count))
    noise = draw.integers(-64, 64, (count, patterns.shape[1]), np.int16)
    return labels.astype(np.uint8), (patterns[shown] + noise).astype(np.uint8)


def write_cifar(folder, draw):
    patterns = draw.integers(64, 192, (CLASSES, 3072))
    for name in [f"data_batch_{number}" for number in range(1, 6)] + ["test_batch"]:
        labels, pixels = draw_pictures(draw, patterns, RECORDS)
        np.concatenate([labels[:, None], pixels], axis=1).tofile(folder / f"{name}.bin")


def write_idx(path, array):
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    path.write_bytes(header + array.tobytes())


def write_large(folder, draw, side):
    patterns = draw.integers(64, 192, (CLASSES, side * side * 3))
    for name, count in (("train", LARGE_PICTURES), ("t10k", 16)):
        labels, pixels = draw_pictures(draw, patterns, count)
        write_idx(folder / f"{name}-images-idx4-ubyte", pixels.reshape(count, side, side, 3))
        write_idx(folder / f"{name}-labels-idx1-ubyte", labels)


def patch(model):
    """See above. dpt's layers have the names of the modules."""
    changes = []
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            changes.append({"change": name, "sync": True})
        elif isinstance(module, torch.nn.Dropout):
            changes.append({"change": name, "p": 0.0})
    return changes


def main():
    net, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.manual_seed(1)
    model = MODELS[net]()
    save_file(model.state_dict(), folder / "init.safetensors")
    (folder / "patch.json").write_text(json.dumps(patch(model)))
    data = folder / "data"
    data.mkdir()
    draw = np.random.default_rng(1)
    if SIDE[net] == 32:
        write_cifar(data, draw)
    else:
        write_large(data, draw, SIDE[net])


main()
