#!/usr/bin/env python3
"""Trains a recipe of configs/ in PyTorch: the same network, initialisation, augmentation, schedule and loss.

  python3 scripts/bench/programs/torch_recipe.py RECIPE --data FOLDER [--seed N] [--threads N] [--epochs N] [--lr LR]
                                         [--weights FILE]

RECIPE is the name of a config: digits-lenet, lenet-fashion-mnist, resnet20-fashion-mnist,
resnet20-cifar10-jpeg or finetune-resnet20. FOLDER holds the data as for dpt: digits, fashion-mnist,
cifar10-jpeg, cifar-small. --weights is a safetensors file, whose last layer is left out. Prints one JSON
object per epoch and, at the end, the test accuracy of the best epoch (of the last one without validation).
Needs torch and numpy; Pillow for folders of images; safetensors for --weights.
"""

import argparse
import json
import math
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from common import read_idx
from torch_models import LeNet, ResNet


class DigitsNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 32, 3, padding=1)
        self.conv2 = nn.Conv2d(32, 64, 3, padding=1)
        self.fc1 = nn.Linear(64 * 4 * 4, 64)
        self.fc2 = nn.Linear(64, 10)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.conv2(F.relu(self.conv1(x)))), 2)
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


def resnet20(channels, classes):
    """Convolutions start as by kaiming_normal_ with fan_out, the last layer from PyTorch's defaults."""
    model = ResNet([16, 32, 64], 3)
    model.conv1 = nn.Conv2d(channels, 16, 3, 1, 1, bias=False)
    model.fc = nn.Linear(64, classes)
    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
    return model


DEFAULTS = {
    "padding": 0,
    "flip": False,
    "nesterov": False,
    "decay": 0.0,
    "smoothing": 0.0,
    "one_cycle": None,  # pct_start; None is a cosine after `warmup` epochs
    "warmup": 1,
    "best": None,  # what selects the epoch that is tested; None is the last epoch
}
FASHION = {
    "data": "fashion-mnist",
    "mean": [0.286],
    "std": [0.353],
    "val": 5000,
    "best": "accuracy",
    "epochs": 10,
}
CIFAR = {
    "mean": [0.4914, 0.4822, 0.4465],
    "std": [0.247, 0.2435, 0.2616],
    "padding": 4,
    "flip": True,
    "nesterov": True,
    "decay": 0.0005,
}
RECIPES = {
    "digits-lenet": {
        "data": "digits",
        "mean": [0.305],
        "std": [0.375],
        "val": 137,
        "best": "loss",
        "padding": 1,
        "model": lambda classes: DigitsNet(),
        "batch": 32,
        "lr": 0.05,
        "decay": 0.0005,
        "epochs": 25,
    },
    "lenet-fashion-mnist": FASHION | {"model": lambda classes: LeNet(), "batch": 256, "lr": 0.05},
    "resnet20-fashion-mnist": FASHION
    | {
        "padding": 2,
        "flip": True,
        "model": lambda classes: resnet20(1, classes),
        "batch": 128,
        "lr": 0.1,
        "decay": 0.0001,
    },
    "resnet20-cifar10-jpeg": CIFAR
    | {
        "data": "cifar10-jpeg",
        "val": 2000,
        "best": "loss",
        "model": lambda classes: resnet20(3, classes),
        "batch": 128,
        "lr": 0.2,
        "epochs": 40,
        "one_cycle": 0.2,
        "smoothing": 0.05,
    },
    "finetune-resnet20": CIFAR
    | {
        "data": "cifar-small",
        "val": 0,
        "model": lambda classes: resnet20(3, classes),
        "batch": 32,
        "lr": 0.01,
        "warmup": 5,
        "epochs": 60,
    },
}


def read_split(folder, idx_prefix, name):
    """Returns images (N, C, H, W) of uint8 and labels (N) of int64."""
    if not (folder / name).is_dir():
        images = read_idx(str(folder / f"{idx_prefix}-images-idx3-ubyte.gz"))[:, None]
        labels = read_idx(str(folder / f"{idx_prefix}-labels-idx1-ubyte.gz"))
    else:
        from PIL import Image

        images, labels = [], []
        for label, path in enumerate(sorted((folder / name).iterdir())):
            for file in sorted(path.iterdir()):
                images.append(np.asarray(Image.open(file).convert("RGB")).transpose(2, 0, 1))
                labels.append(label)
    return torch.tensor(np.array(images)), torch.tensor(np.array(labels), dtype=torch.int64)


class Input:
    """Crops, flips and normalises batches; the border of a crop is black, as Pillow's is."""

    def __init__(self, recipe, generator):
        self.padding, self.flip, self.generator = recipe["padding"], recipe["flip"], generator
        self.mean = torch.tensor(recipe["mean"]).view(1, -1, 1, 1)
        self.std = torch.tensor(recipe["std"]).view(1, -1, 1, 1)

    def normalised(self, images):
        x = (images.float() / 255 - self.mean) / self.std
        return x.contiguous(memory_format=torch.channels_last)

    def offsets(self, count):
        return torch.randint(2 * self.padding + 1, (count, 1), generator=self.generator)

    def augmented(self, images):
        n, channels, height, width = images.shape
        rows = self.offsets(n) + torch.arange(height)
        columns = self.offsets(n) + torch.arange(width)
        if self.flip:
            flipped = torch.rand(n, 1, generator=self.generator) < 0.5
            columns = torch.where(flipped, columns.flip(1), columns)
        cropped = F.pad(images, [self.padding] * 4)[
            torch.arange(n)[:, None, None, None],
            torch.arange(channels)[None, :, None, None],
            rows[:, None, :, None],
            columns[:, None, None, :],
        ]
        return self.normalised(cropped)


def make_schedule(optimizer, recipe, epochs, steps_per_epoch):
    total = epochs * steps_per_epoch
    if recipe["one_cycle"] is not None:
        return torch.optim.lr_scheduler.OneCycleLR(
            optimizer, recipe["lr"], total, pct_start=recipe["one_cycle"], cycle_momentum=False
        )
    warmup = recipe["warmup"] * steps_per_epoch

    def factor(step):
        if step < warmup:
            return (1 + 2 * step / warmup) / 3
        return (1 + math.cos(math.pi * (step - warmup) / max(1, total - warmup))) / 2

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


@torch.no_grad()
def evaluate(model, inputs, images, labels, smoothing):
    model.eval()
    loss, correct = 0.0, 0
    for x, y in zip(images.split(500), labels.split(500)):
        logits = model(inputs.normalised(x))
        loss += F.cross_entropy(logits, y, label_smoothing=smoothing, reduction="sum").item()
        correct += (logits.argmax(1) == y).sum().item()
    return {"n": len(labels), "loss": loss / len(labels), "accuracy": correct / len(labels)}


def load_all_but_head(model, path):
    from safetensors.torch import load_file

    names = [name for name in model.state_dict() if not name.startswith("fc.")]
    tensors = load_file(path)
    model.load_state_dict({name: tensors[name] for name in names}, strict=False)


def train_epoch(model, optimizer, schedule, inputs, recipe, images, labels):
    """Returns mean loss and accuracy, each sample as it was before the update of its step."""
    model.train()
    loss_sum, correct = 0.0, 0
    order = torch.randperm(len(labels), generator=inputs.generator)
    for index in order.split(recipe["batch"]):
        target = labels[index]
        logits = model(inputs.augmented(images[index]))
        loss = F.cross_entropy(logits, target, label_smoothing=recipe["smoothing"])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()
        loss_sum += loss.item() * len(index)
        correct += (logits.argmax(1) == target).sum().item()
    return {"loss": loss_sum / len(labels), "accuracy": correct / len(labels)}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", choices=RECIPES)
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--lr", type=float)
    parser.add_argument("--weights")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    generator = torch.Generator().manual_seed(args.seed)
    recipe = DEFAULTS | RECIPES[args.recipe]
    recipe["lr"] = args.lr or recipe["lr"]
    epochs, smoothing, best_by = args.epochs or recipe["epochs"], recipe["smoothing"], recipe["best"]

    folder = args.data / recipe["data"]
    images, labels = read_split(folder, "train", "train")
    test = read_split(folder, "t10k", "test")
    order = torch.randperm(len(labels), generator=generator)
    held_out, training = order[: recipe["val"]], order[recipe["val"] :]
    val = images[held_out], labels[held_out]
    images, labels = images[training], labels[training]

    model = recipe["model"](len(labels.unique()))
    if args.weights:
        load_all_but_head(model, args.weights)
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(
        model.parameters(),
        recipe["lr"],
        momentum=0.9,
        nesterov=recipe["nesterov"],
        weight_decay=recipe["decay"],
    )
    steps_per_epoch = math.ceil(len(labels) / recipe["batch"])
    schedule = make_schedule(optimizer, recipe, epochs, steps_per_epoch)
    inputs = Input(recipe, generator)

    best_score, best_epoch, best_state = -math.inf, 0, {}
    for epoch in range(1, epochs + 1):
        line = {"epoch": epoch}
        line |= train_epoch(model, optimizer, schedule, inputs, recipe, images, labels)
        score = epoch
        if best_by:
            line["val"] = evaluate(model, inputs, *val, smoothing)
            score = line["val"][best_by] * (1 if best_by == "accuracy" else -1)
        if score > best_score:
            best_score, best_epoch = score, epoch
            best_state = {name: x.clone() for name, x in model.state_dict().items()}
        print(json.dumps(line), flush=True)
    model.load_state_dict(best_state)
    result = {"recipe": args.recipe, "seed": args.seed, "epochs": epochs, "lr": recipe["lr"]}
    result |= {"best_epoch": best_epoch, "from_scratch": not args.weights, "torch": torch.__version__}
    print(json.dumps(result | {"test": evaluate(model, inputs, *test, smoothing)}))


if __name__ == "__main__":
    main()
