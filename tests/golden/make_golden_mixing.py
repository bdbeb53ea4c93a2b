#!/usr/bin/env python3
"""Makes tests/golden/mixing.json: a small batch under torchvision's MixUp, CutMix and RandomErasing.

    python3 tests/golden/make_golden_mixing.py         needs torch and torchvision

What the transforms would draw is given: the factor of MixUp; the factor and the middle of CutMix's
box, of which torchvision makes the box; RandomErasing's rectangle. Pixels and targets are float32,
as hexadecimal bytes; pixels in the order batch, height, width, channels.
"""

import json
import pathlib
import struct
import unittest.mock

import torch
import torchvision
from torchvision.transforms import v2

HERE = pathlib.Path(__file__).resolve().parent
BATCH, HEIGHT, WIDTH, CHANNELS, CLASSES = 4, 5, 7, 3, 5
LABELS = [3, 0, 0, 4]


def batch():
    """(N, C, H, W), multiples of 1/64 from -6 to 6."""
    places = torch.arange(BATCH * CHANNELS * HEIGHT * WIDTH, dtype=torch.int64)
    values = (places * 2654435761 + 40503) % 769 - 384
    return values.reshape(BATCH, CHANNELS, HEIGHT, WIDTH).float() / 64


def soft_labels():
    places = torch.arange(BATCH * CLASSES, dtype=torch.int64).reshape(BATCH, CLASSES)
    rows = ((places * 40503) % 97).float()
    return rows / rows.sum(1, keepdim=True)


def hexadecimal(values):
    flat = values.flatten().tolist()
    return struct.pack(f"<{len(flat)}f", *flat).hex()


def pixels(images):
    return hexadecimal(images.permute(0, 2, 3, 1).contiguous())


def float32(value):
    """As MixUp's factors are, which are drawn in float32."""
    return float(torch.tensor(value, dtype=torch.float32))


def mixed(transform, drawn, labels):
    """The batch and its targets where torch draws the given numbers."""
    factor, middle = drawn[0], [torch.tensor([place]) for place in drawn[1:]]
    transform._dist = unittest.mock.Mock()
    transform._dist.sample.return_value = torch.tensor([factor])
    with unittest.mock.patch("torch.randint", side_effect=middle):
        images, targets = transform(batch(), labels)
    return {"pixels": pixels(images), "targets": hexadecimal(targets)}


def mixing_cases():
    labels = torch.tensor(LABELS)
    for factor in (0.3, 0.5, 0.9999999, 1e-20, 0.0, 1.0):
        lam = float32(factor)
        yield {"type": "MixUp", "lambda": lam, **mixed(v2.MixUp(num_classes=CLASSES), [lam], labels)}
    lam = float32(0.7)
    yield {"type": "MixUp", "lambda": lam, "soft": True, **mixed(v2.MixUp(), [lam], soft_labels())}
    for factor, x, y in ((0.3, 3, 2), (0.8, 0, 4), (0.5, 6, 0), (0.999, 3, 3), (0.0, 3, 2), (0.0, 0, 0)):
        lam = float32(factor)
        case = {"type": "CutMix", "lambda": lam, "x": x, "y": y}
        yield {**case, **mixed(v2.CutMix(num_classes=CLASSES), [lam, x, y], labels)}
    case = {"type": "CutMix", "lambda": lam, "x": 5, "y": 1, "soft": True}
    yield {**case, **mixed(v2.CutMix(), [lam, 5, 1], soft_labels())}


def erasing_cases():
    for box, value in (((1, 2, 3, 4), [0.0]), ((0, 0, 1, 7), [0.5, -1.25, 3.0]), ((4, 6, 1, 1), [0.1])):
        i, j, h, w = box
        params = {"i": i, "j": j, "h": h, "w": w, "v": torch.tensor(value)[:, None, None]}
        images = v2.RandomErasing(value=value).transform(batch(), params)
        yield {"type": "RandomErasing", "box": box, "value": value, "pixels": pixels(images)}


def main():
    golden = {
        "torch": torch.__version__,
        "torchvision": torchvision.__version__,
        "shape": [BATCH, HEIGHT, WIDTH, CHANNELS],
        "samples": pixels(batch()),
        "classes": CLASSES,
        "labels": LABELS,
        "soft_labels": hexadecimal(soft_labels()),
    }
    cases = ",\n".join(json.dumps(case) for case in (*mixing_cases(), *erasing_cases()))
    head = json.dumps(golden)[:-1]
    (HERE / "mixing.json").write_text(f'{head}, "cases": [\n{cases}\n]}}\n')


if __name__ == "__main__":
    main()
