#!/usr/bin/env python3
"""Makes tests/golden/run.safetensors and run.json: what PyTorch does in a whole run.

    python3 tests/golden/make_golden_run.py      needs torch, numpy and safetensors

make_golden.py's trajectories compare step by step; this one has what only a run has: an order of samples per
epoch, a short last batch, clipping that acts on some steps only, crops and flips drawn per sample and epoch,
a learning rate that changes, another normalisation for evaluation than for training, validation, the best
epoch, early stopping and the test set. Nothing of it is taken from dpt: the random draws are computed here
from the published formula (Philox4x32-10 with the counters that kernels/base/philox.h, augment.h and
engine/data/splits.cpp document), all else is PyTorch.

    run.safetensors   starting weights under their own names (a file for --weights), and final.NAME,
                      best.NAME: the weights after the last epoch and after the epoch of least validation loss
    run.json          every number of the run, from float64; what float32 may differ from them (the largest
                      difference of PyTorch's own float32 runs in two layouts and with one and two threads);
                      which epochs are the best and where early stopping ends, for several settings

The script ends with an error when the trajectory does not show what it is for (see check_that_it_tells).
"""

import json
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from make_golden import read_idx
from safetensors.torch import save_file
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent

# As in golden_run_test.cpp.
SEED = 11
VAL, BATCH, EPOCHS = 1300, 24, 9
LR, MOMENTUM, WEIGHT_DECAY, CLIP = 0.25, 0.9, 1e-3, 1.25
MILESTONES, GAMMA, WARMUP_STEPS, START_FACTOR = (5, 8), 0.5, 4, 0.25
TRAIN_NORM, EVAL_NORM = (0.305, 0.375), (0.28, 0.42)
PADDING, FLIP = 1, 0.5
SPLIT_USE, SHUFFLE_USE, AUGMENT_USE = 4, 2, 3


def philox(seed, use, a, b):
    mask = 0xFFFFFFFF
    key = [seed & mask, (seed >> 32) ^ (use * 0x9E3779B9 & mask)]
    c = [a & mask, a >> 32, b & mask, b >> 32]
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ key[0], p1 & mask, (p0 >> 32) ^ c[3] ^ key[1], p0 & mask]
        key = [(key[0] + 0x9E3779B9) & mask, (key[1] + 0xBB67AE85) & mask]
    return c


def permutation(n, seed, use, epoch):
    """Fisher-Yates from the end; one block of 128 bits serves the draws of positions 2k + 1 and 2k."""
    order = list(range(n))
    for i in range(n - 1, 0, -1):
        bits = philox(seed, use, epoch, i // 2)
        high, low = (bits[0], bits[1]) if i % 2 == 1 else (bits[2], bits[3])
        j = ((high << 32 | low) * (i + 1)) >> 64
        order[i], order[j] = order[j], order[i]
    return order


def augment(image, epoch, sample):
    """RandomCrop(8, padding=1) and RandomHorizontalFlip of one raw image."""
    bits = philox(SEED, AUGMENT_USE, epoch, sample)
    corners = 2 * PADDING + 1
    top, left = (bits[0] * corners) >> 32, (bits[1] * corners) >> 32
    padded = np.pad(image, PADDING)
    cropped = padded[top : top + 8, left : left + 8]
    return cropped[:, ::-1] if (bits[2] >> 8) * 2.0**-24 < FLIP else cropped


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1)
        self.fc1 = nn.Linear(96, 10)

    def forward(self, x):
        return self.fc1(torch.flatten(F.max_pool2d(F.relu(self.conv1(x)), 2), 1))


def learning_rate(step, steps_per_epoch):
    rate = LR * GAMMA ** sum(step // steps_per_epoch >= m for m in MILESTONES)
    if step < WARMUP_STEPS:
        rate *= START_FACTOR + (1 - START_FACTOR) * step / WARMUP_STEPS
    return rate


class Run:
    def __init__(self, init, train_set, test_set, dtype, layout, threads):
        torch.set_num_threads(threads)
        self.dtype, self.layout = dtype, layout
        self.model = Net().to(dtype)
        self.model.load_state_dict({k: v.to(dtype) for k, v in init.items()})
        self.model = self.model.to(memory_format=layout)
        self.images, self.labels = train_set
        self.test_set = test_set
        order = permutation(len(self.images), SEED, SPLIT_USE, 0)
        self.val, self.train = sorted(order[:VAL]), sorted(order[VAL:])
        self.steps, self.epochs, self.weights = [], [], []
        self.closest = []  # per evaluation: gaps between the two largest outputs
        self.go()

    def input(self, raw, norm):
        x = (torch.from_numpy(np.ascontiguousarray(raw)).to(self.dtype) / 255 - norm[0]) / norm[1]
        return x.unsqueeze(1).to(memory_format=self.layout)

    def measure(self, images, labels):
        with torch.no_grad():
            out = self.model(self.input(images, EVAL_NORM))
        top = out.topk(2).values
        self.closest.append((top[:, 0] - top[:, 1]).min().item())
        losses = F.cross_entropy(out, torch.from_numpy(labels), reduction="none").double()
        return losses.mean().item(), (out.argmax(1).numpy() == labels).sum().item()

    def go(self):
        optimizer = torch.optim.SGD(
            self.model.parameters(), lr=LR, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY
        )
        per_epoch = -(-len(self.train) // BATCH)
        step = 0
        for epoch in range(EPOCHS):
            order = permutation(len(self.train), SEED, SHUFFLE_USE, epoch)
            loss_sum = correct = 0
            for begin in range(0, len(order), BATCH):
                ids = [self.train[p] for p in order[begin : begin + BATCH]]
                raw = np.stack([augment(self.images[i], epoch, i) for i in ids])
                labels = torch.from_numpy(self.labels[ids])
                out = self.model(self.input(raw, TRAIN_NORM))
                loss = F.cross_entropy(out, labels)
                optimizer.zero_grad()
                loss.backward()
                norm = nn.utils.clip_grad_norm_(self.model.parameters(), CLIP).item()
                rate = learning_rate(step, per_epoch)
                optimizer.param_groups[0]["lr"] = rate
                optimizer.step()
                hits = (out.argmax(1) == labels).sum().item()
                self.steps.append(
                    {"loss": loss.item(), "accuracy": hits / len(ids), "lr": rate, "grad_norm": norm}
                )
                loss_sum += loss.item() * len(ids)
                correct += hits
                step += 1
            val_loss, val_hits = self.measure(self.images[self.val], self.labels[self.val])
            self.weights.append(
                {k: v.detach().double().contiguous().clone() for k, v in self.model.state_dict().items()}
            )
            test_loss, test_hits = self.measure(*self.test_set)
            self.epochs.append(
                {
                    "loss": loss_sum / len(order),
                    "accuracy": correct / len(order),
                    "val_loss": val_loss,
                    "val_hits": val_hits,
                    "test_loss": test_loss,
                    "test_hits": test_hits,
                }
            )


def best_epoch(values, maximise):
    """The first epoch (from 1) with the extreme value: a later equal one is no improvement."""
    return values.index(max(values) if maximise else min(values)) + 1


def stops_after(values, maximise, patience, min_delta, reset=True):
    """The epoch after which early stopping ends the run."""
    best, bad = None, 0
    for epoch, value in enumerate(values, 1):
        gain = float("inf") if best is None else (value - best if maximise else best - value)
        if gain > min_delta:
            best, bad = value, 0 if reset else bad
        else:
            bad += 1
            if bad >= patience:
                return epoch
    return len(values)


def check_that_it_tells(run, losses, hits, stops):
    norms = [s["grad_norm"] for s in run.steps]
    clipped = [n > CLIP for n in norms]
    assert 0.2 < np.mean(clipped) < 0.8, f"clipped: {np.mean(clipped)}"
    # Between logged steps (1, 4, 8, ...) too.
    unlogged = [c for s, c in enumerate(clipped, 1) if s != 1 and s % 4 != 0]
    assert any(unlogged) and not all(unlogged)
    assert min(abs(n - CLIP) for n in norms) > 1e-3
    assert len(run.train) % BATCH != 0
    # Best by either measure is neither the first nor the last epoch.
    by_loss, by_hits = best_epoch(losses, False), best_epoch(hits, True)
    assert 1 < by_loss < EPOCHS and 1 < by_hits < EPOCHS, (losses, hits)
    ordered = sorted(losses)
    assert min(b - a for a, b in zip(ordered, ordered[1:])) > 2e-4, ordered
    for stop in stops:
        assert 1 < stop["epoch"] < EPOCHS, stop
    assert any(s["epoch"] != s["without_reset"] for s in stops), stops


def main():
    torch.manual_seed(4)
    train_set = tuple(
        a.copy() for a in (read_idx("train-images-idx3-ubyte.gz"), read_idx("train-labels-idx1-ubyte.gz").astype(np.int64))
    )
    test_set = tuple(
        a.copy() for a in (read_idx("t10k-images-idx3-ubyte.gz"), read_idx("t10k-labels-idx1-ubyte.gz").astype(np.int64))
    )
    init = {k: v.clone() for k, v in Net().state_dict().items()}
    data = (init, train_set, test_set)
    exact = Run(*data, torch.float64, torch.contiguous_format, 1)
    losses = [e["val_loss"] for e in exact.epochs]
    hits = [e["val_hits"] for e in exact.epochs]
    print("val loss", [f"{v:.4f}" for v in losses])
    print("val hits", hits, "closest", min(exact.closest))

    error = {"loss": 0.0, "grad_norm": 0.0, "epoch_loss": 0.0, "eval_loss": 0.0, "hits": 0, "weight": 0.0}
    for layout in (torch.contiguous_format, torch.channels_last):
        for threads in (1, 2):
            single = Run(*data, torch.float32, layout, threads)

            def widen(name, pairs):
                error[name] = max([error[name]] + [abs(a - b) for a, b in pairs])

            for key in ("loss", "grad_norm"):
                widen(key, [(a[key], b[key]) for a, b in zip(exact.steps, single.steps)])
            for a, b in zip(exact.epochs, single.epochs):
                widen("epoch_loss", [(a["loss"], b["loss"])])
                widen("eval_loss", [(a[k], b[k]) for k in ("val_loss", "test_loss")])
                widen("hits", [(a[k], b[k]) for k in ("val_hits", "test_hits")])
            for a, b in zip(exact.weights, single.weights):
                widen("weight", [(0.0, (a[k] - b[k]).abs().max().item()) for k in a])
    print("float32 errors", error)

    stops = []
    for monitor, maximise, patience, min_delta in (
        ("val/loss", False, 2, 0.0),
        ("val/accuracy", True, 2, 0.0),
        ("val/loss", False, 1, 0.1),
        ("val/accuracy", True, 1, 0.0),
    ):
        values = [h / VAL for h in hits] if maximise else losses
        stops.append(
            {
                "monitor": monitor,
                "mode": "max" if maximise else "min",
                "patience": patience,
                "min_delta": min_delta,
                "epoch": stops_after(values, maximise, patience, min_delta),
                "without_reset": stops_after(values, maximise, patience, min_delta, False),
            }
        )
    print(stops)
    check_that_it_tells(exact, losses, hits, stops)

    best = best_epoch(losses, False)
    tensors = dict(init)
    tensors |= {f"final.{k}": v.float() for k, v in exact.weights[-1].items()}
    tensors |= {f"best.{k}": v.float() for k, v in exact.weights[best - 1].items()}
    save_file(tensors, HERE / "run.safetensors", {"torch": torch.__version__})
    result = {
        "torch": torch.__version__,
        "steps_per_epoch": len(exact.steps) // EPOCHS,
        "val_samples": VAL,
        "test_samples": len(test_set[1]),
        "error": error,
        "best": {"val/loss": best, "val/accuracy": best_epoch(hits, True)},
        "early_stopping": stops,
        "epochs": exact.epochs,
        "steps": exact.steps,
    }
    (HERE / "run.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
