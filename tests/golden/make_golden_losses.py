#!/usr/bin/env python3
"""Makes tests/golden/losses.json: PyTorch's losses of a few logits, in float64.

    python3 tests/golden/make_golden_losses.py         needs torch

Each case has the losses of its samples (reduction="none"; of elementwise losses the mean over a
sample's outputs), their weights, the mean over the batch as PyTorch divides it, and the gradient of
that mean. The targets of elementwise losses are one-hot; their cases also have the mean absolute and
squared error of each sample. Logits are multiples of 1/64, exact in float32.
"""

import json
import pathlib

import torch
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent


def logits_of(batch, classes):
    places = torch.arange(batch * classes, dtype=torch.int64)
    return ((places * 2654435761 + 40503) % 769 - 384).reshape(batch, classes).double() / 64


def labels_of(batch, classes):
    return torch.arange(batch) * 7 % classes


def weights_of(classes):
    """Some of them 0, exact in float32."""
    return [(c * 5 % 8) / 4 for c in range(classes)]


def cross_entropy(batch, classes, label_smoothing=0.0, class_weights=None, ignore_index=None):
    logits = logits_of(batch, classes).requires_grad_()
    labels = labels_of(batch, classes)
    options = {
        "weight": None if class_weights is None else torch.tensor(class_weights).double(),
        "ignore_index": -100 if ignore_index is None else ignore_index,
        "label_smoothing": label_smoothing,
    }
    mean = nn.CrossEntropyLoss(**options)(logits, labels)
    mean.backward()
    weights = torch.ones(classes).double() if class_weights is None else options["weight"]
    weights = torch.where(labels == options["ignore_index"], 0.0, weights[labels])
    given = {"label_smoothing": label_smoothing, "class_weights": class_weights, "ignore_index": ignore_index}
    return {
        "type": "cross_entropy",
        "options": {name: value for name, value in given.items() if value},
        "losses": nn.CrossEntropyLoss(**options, reduction="none")(logits, labels).tolist(),
        "weights": weights.tolist(),
        "mean": mean.item(),
        "gradient": logits.grad.flatten().tolist(),
    } | {"classes": classes, "logits": logits.flatten().tolist(), "labels": labels.tolist()}  # fmt: skip


def element(name, function, batch, classes, predicted=lambda x: x, **options):
    logits = logits_of(batch, classes).requires_grad_()
    labels = labels_of(batch, classes)
    targets = nn.functional.one_hot(labels, classes).double()
    weights = {"pos_weight": torch.tensor(options["pos_weight"]).double()} if "pos_weight" in options else options
    mean = function(**weights)(logits, targets)
    mean.backward()
    errors = predicted(logits) - targets
    return {
        "type": name,
        "options": options,
        "losses": function(**weights, reduction="none")(logits, targets).mean(1).tolist(),
        "weights": [1.0] * batch,
        "mean": mean.item(),
        "gradient": logits.grad.flatten().tolist(),
        "absolute": errors.abs().mean(1).tolist(),
        "squared": errors.square().mean(1).tolist(),
    } | {"classes": classes, "logits": logits.flatten().tolist(), "labels": labels.tolist()}


def cases():
    yield cross_entropy(5, 4)
    yield cross_entropy(5, 4, label_smoothing=0.1)
    yield cross_entropy(6, 4, class_weights=weights_of(4))
    yield cross_entropy(9, 11, class_weights=weights_of(11), label_smoothing=0.25)
    yield cross_entropy(6, 4, ignore_index=3)
    yield cross_entropy(9, 11, class_weights=weights_of(11), label_smoothing=0.1, ignore_index=7)
    yield element("mse", nn.MSELoss, 5, 4)
    yield element("mse", nn.MSELoss, 3, 130)
    yield element("l1", nn.L1Loss, 5, 4)
    yield element("smooth_l1", nn.SmoothL1Loss, 5, 4)
    yield element("smooth_l1", nn.SmoothL1Loss, 5, 11, beta=2.5)
    yield element("smooth_l1", nn.SmoothL1Loss, 5, 4, beta=0.0)
    yield element("bce_with_logits", nn.BCEWithLogitsLoss, 5, 4, torch.sigmoid)
    weights = weights_of(11)
    yield element("bce_with_logits", nn.BCEWithLogitsLoss, 9, 11, torch.sigmoid, pos_weight=weights)


def rounded(value):
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list):
        return [rounded(each) for each in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


def main():
    lines = ",\n".join(json.dumps(rounded(case)) for case in cases())
    (HERE / "losses.json").write_text(f'{{"torch": "{torch.__version__}", "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
