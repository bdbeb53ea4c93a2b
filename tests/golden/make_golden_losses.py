#!/usr/bin/env python3
"""Makes tests/golden/losses.json: PyTorch's losses of a few logits, in float64.

    python3 tests/golden/make_golden_losses.py         needs torch

Each case has the losses of its samples (reduction="none"; of elementwise losses the mean over a
sample's outputs), their weights, the mean over the batch as PyTorch divides it, and the gradient of
that mean. Targets are one-hot, or "targets" of the kind "kind"; the cases of elementwise losses also
have the mean absolute and squared error of each sample, and the share of its outputs that are on
their target's side of 0.5. Where there are "sample_weights", the mean is the sum of weight * loss over
that of the weights; PyTorch leaves that to its users. Logits and targets are multiples of 1/64, exact
in float32.
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


def soft_of(batch, classes):
    """Probabilities, each row beginning at another class: (1/2, 1/4, ..., 1/32, 1/32, 0, 0, ...)."""
    row = torch.zeros(classes).double()
    steps = min(classes, 6)
    for c in range(steps):
        row[c] = 2.0 ** -min(c + 1, steps - 1)
    return torch.stack([row.roll(3 * k % classes) for k in range(batch)])


def hot_of(batch, classes):
    places = torch.arange(batch * classes)
    return (places * 2654435761 % 7 < 3).reshape(batch, classes).double()


def values_of(batch, classes):
    return logits_of(batch, classes).flip(0) / 2


def sample_weights_of(batch):
    """Some of them 0, exact in float32."""
    return torch.tensor([(k * 3 + 2) % 5 / 4 for k in range(batch)]).double()


TARGETS = {"soft_labels": soft_of, "multi_hot": hot_of, "values": values_of}


def mean_of(losses, weights, sample_weights):
    """Of losses that are multiplied by the weights of their classes already."""
    if sample_weights is None:
        return losses.sum() / weights.sum(), losses, weights
    losses, weights = losses * sample_weights, weights * sample_weights
    return losses.sum() / weights.sum(), losses, weights


def targets_of(kind, rows, sample_weights):
    case = {} if kind is None else {"kind": kind, "targets": rows.flatten().tolist()}
    return case if sample_weights is None else case | {"sample_weights": sample_weights.tolist()}


def cross_entropy(
    batch, classes, label_smoothing=0.0, class_weights=None, ignore_index=None, kind=None, weighted=False
):
    logits = logits_of(batch, classes).requires_grad_()
    rows = soft_of(batch, classes) if kind else None
    labels = rows.argmax(1) if kind else labels_of(batch, classes)
    sample_weights = sample_weights_of(batch) if weighted else None
    options = {
        "weight": None if class_weights is None else torch.tensor(class_weights).double(),
        "ignore_index": -100 if ignore_index is None else ignore_index,
        "label_smoothing": label_smoothing,
    }
    losses = nn.CrossEntropyLoss(**options, reduction="none")(logits, rows if kind else labels)
    weights = torch.ones(classes).double() if class_weights is None or kind else options["weight"]
    weights = torch.where(labels == options["ignore_index"], 0.0, weights[labels])
    mean, losses, weights = mean_of(losses, weights, sample_weights)
    if not weighted:
        torch.testing.assert_close(mean, nn.CrossEntropyLoss(**options)(logits, rows if kind else labels))
    mean.backward()
    given = {"label_smoothing": label_smoothing, "class_weights": class_weights, "ignore_index": ignore_index}
    return {
        "type": "cross_entropy",
        "options": {name: value for name, value in given.items() if value},
        "losses": losses.tolist(),
        "weights": weights.tolist(),
        "mean": mean.item(),
        "gradient": logits.grad.flatten().tolist(),
    } | {"classes": classes, "logits": logits.flatten().tolist(), "labels": labels.tolist()} | targets_of(
        kind, rows, sample_weights)  # fmt: skip


def element(name, function, batch, classes, predicted=lambda x: x, kind=None, weighted=False, **options):
    logits = logits_of(batch, classes).requires_grad_()
    labels = labels_of(batch, classes)
    targets = TARGETS[kind](batch, classes) if kind else nn.functional.one_hot(labels, classes).double()
    if kind == "soft_labels":
        labels = targets.argmax(1)
    sample_weights = sample_weights_of(batch) if weighted else None
    weights = {"pos_weight": torch.tensor(options["pos_weight"]).double()} if "pos_weight" in options else options
    losses = function(**weights, reduction="none")(logits, targets).mean(1)
    mean, losses, of_samples = mean_of(losses, torch.ones(batch).double(), sample_weights)
    if not weighted:
        torch.testing.assert_close(mean, function(**weights)(logits, targets))
    mean.backward()
    errors = predicted(logits) - targets
    matches = (predicted(logits) > 0.5) == (targets > 0.5)
    return {
        "type": name,
        "options": options,
        "losses": losses.tolist(),
        "weights": of_samples.tolist(),
        "mean": mean.item(),
        "gradient": logits.grad.flatten().tolist(),
        "absolute": errors.abs().mean(1).tolist(),
        "squared": errors.square().mean(1).tolist(),
        "matches": matches.double().mean(1).tolist(),
    } | {"classes": classes, "logits": logits.flatten().tolist(), "labels": labels.tolist()} | targets_of(
        kind, targets, sample_weights)  # fmt: skip


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
    soft = {"kind": "soft_labels"}
    yield cross_entropy(5, 4, **soft)
    yield cross_entropy(5, 4, label_smoothing=0.125, **soft)
    yield cross_entropy(9, 11, class_weights=weights, **soft)
    yield cross_entropy(9, 11, class_weights=weights, label_smoothing=0.25, weighted=True, **soft)
    yield cross_entropy(3, 130, weighted=True, **soft)
    yield cross_entropy(6, 4, weighted=True)
    yield cross_entropy(9, 11, class_weights=weights, ignore_index=7, weighted=True)
    yield element("bce_with_logits", nn.BCEWithLogitsLoss, 5, 4, torch.sigmoid, kind="multi_hot")
    hot = {"kind": "multi_hot", "weighted": True}
    yield element("bce_with_logits", nn.BCEWithLogitsLoss, 9, 11, torch.sigmoid, pos_weight=weights, **hot)
    yield element("bce_with_logits", nn.BCEWithLogitsLoss, 5, 4, torch.sigmoid, **soft)
    yield element("mse", nn.MSELoss, 5, 4, kind="values")
    yield element("mse", nn.MSELoss, 5, 1, kind="values", weighted=True)
    yield element("mse", nn.MSELoss, 3, 130, kind="values")
    yield element("mse", nn.MSELoss, 5, 4, weighted=True)
    yield element("l1", nn.L1Loss, 5, 4, kind="values", weighted=True)
    yield element("smooth_l1", nn.SmoothL1Loss, 5, 11, kind="values", beta=2.5)
    yield element("mse", nn.MSELoss, 5, 4, kind="multi_hot")


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
