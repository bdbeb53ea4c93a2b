#!/usr/bin/env python3
"""Makes tests/golden/NET.safetensors: what PyTorch does with a net in 50 steps.

    python3 tests/golden/make_golden.py [NET...]         needs torch, numpy and safetensors

`lenet` has LeNet's layers and channel counts (20 and 50: no multiple of any vector width), `residual` two
residual blocks, one with a convolution in its shortcut, `normalised` batch normalisation of images and
vectors, `shared` a convolution and a linear layer that are applied several times, `transposed` transposed
convolutions, `padded` the zoo's resnet20 with padded shortcuts (option A of He et al. 2015), all on the 8x8 digits of the repository, so that the files stay small. One trajectory with SGD (momentum, weight decay), for `lenet` also one with Adam, all
of a net from the same weights and on the same samples:

    indices                 I32 (50, 32)  the samples of each step, in the training file
    init.NAME               F32           starting weights and state, torchvision's names and layouts
    sgd.losses, adam.losses F64 (50)      mean loss of each step, before its update
    sgd.final.NAME, ...     F32           weights after the last step

Losses and final weights are those of a float64 run: the exact answer, up to about 1e-12. What a
float32 implementation may differ from it is measured, not guessed: the same run is done in float32
with PyTorch's two memory layouts and one and two threads, and the largest differences go into the
file's metadata (sgd.loss_error, sgd.weight_error, sgd.weight_error_rms, ...); golden_test.cpp allows
a small multiple of them.
"""

import argparse
import gzip
import pathlib

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch import nn

STEPS, BATCH = 50, 32
HERE = pathlib.Path(__file__).resolve().parent
DIGITS = HERE.parent.parent / "datasets" / "digits"


def read_idx(name):
    raw = gzip.decompress((DIGITS / name).read_bytes())
    dims = raw[3]
    shape = np.frombuffer(raw, ">i4", dims, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dims).reshape(shape)


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 3, padding=1)
        self.conv2 = nn.Conv2d(20, 50, 3, padding=1)
        self.fc1 = nn.Linear(200, 32)
        self.fc2 = nn.Linear(32, 10)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1)
        self.a1 = nn.Conv2d(6, 6, 3, padding=1)
        self.a2 = nn.Conv2d(6, 6, 3, padding=1)
        self.b1 = nn.Conv2d(6, 10, 3, stride=2, padding=1)
        self.b2 = nn.Conv2d(10, 10, 3, padding=1)
        self.b_shortcut = nn.Conv2d(6, 10, 1, stride=2)
        self.fc = nn.Linear(10, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.a2(F.relu(self.a1(x))) + x)
        x = F.relu(self.b2(F.relu(self.b1(x))) + self.b_shortcut(x))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


class Normalised(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(6)
        self.conv2 = nn.Conv2d(6, 10, 3, stride=2, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(10, momentum=None)
        self.conv3 = nn.Conv2d(10, 10, 3, padding=1, bias=False)
        self.bn3 = nn.BatchNorm2d(10, eps=1e-3, momentum=0.3)
        self.fc1 = nn.Linear(160, 12)
        self.bn4 = nn.BatchNorm1d(12, affine=False)
        self.fc2 = nn.Linear(12, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = F.relu(self.bn2(self.conv2(x)))
        x = F.relu(self.bn3(self.conv3(x)) + x)
        return self.fc2(F.relu(self.bn4(self.fc1(torch.flatten(x, 1)))))


class Shared(nn.Module):
    """Smooth, so that no rounding error decides on which side of a kink a value is."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, padding=1)
        self.conv2 = nn.Conv2d(6, 6, 3, padding=1)
        self.fc1 = nn.Linear(96, 24)
        self.fc2 = nn.Linear(24, 24)
        self.fc3 = nn.Linear(24, 10)

    def forward(self, x):
        x = torch.tanh(self.conv1(x))
        x = torch.tanh(self.conv2(torch.tanh(self.conv2(x))) + x)
        x = torch.tanh(F.conv2d(x, self.conv2.weight, self.conv2.bias, stride=2, padding=1))
        x = torch.tanh(self.fc1(torch.flatten(x, 1)))
        return self.fc3(torch.tanh(self.fc2(torch.tanh(self.fc2(x)))))


class Transposed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 3, stride=2, padding=1)
        self.up1 = nn.ConvTranspose2d(6, 8, 3, stride=2, padding=1, output_padding=1)
        self.conv2 = nn.Conv2d(8, 8, 3, stride=3)
        self.up2 = nn.ConvTranspose2d(8, 6, (2, 3), stride=(2, 1), groups=2, bias=False)
        self.fc = nn.Linear(96, 10)

    def forward(self, x):
        x = torch.tanh(self.up1(torch.tanh(self.conv1(x))))
        x = torch.tanh(self.up2(torch.tanh(self.conv2(x))))
        return self.fc(torch.flatten(x, 1))


class PaddedBlock(nn.Module):
    def __init__(self, before, width):
        super().__init__()
        self.before, self.width = before, width
        stride = 1 if before == width else 2
        self.conv1 = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)

    def forward(self, x):
        y = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        if self.before != self.width:
            added = (self.width - self.before) // 2
            x = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, added, added))
        return F.relu(y + x)


class Padded(nn.Module):
    def __init__(self, width=2):
        super().__init__()
        self.conv1 = nn.Conv2d(1, width, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        for stage in (1, 2, 3):
            before = width if stage == 1 else width * 2 ** (stage - 2)
            now = width * 2 ** (stage - 1)
            blocks = [PaddedBlock(before if i == 0 else now, now) for i in range(3)]
            setattr(self, f"layer{stage}", nn.Sequential(*blocks))
        self.fc = nn.Linear(4 * width, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer3(self.layer2(self.layer1(x)))
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


# Each with SGD's learning rate: batch normalisation makes more of rounding errors than nets without
# (at 0.1 PyTorch's own float32 runs are 0.01 apart in the loss), so its steps are smaller.
NETS = {
    "lenet": (LeNet, ("sgd", "adam"), 0.1),
    "residual": (Residual, ("sgd",), 0.1),
    "normalised": (Normalised, ("sgd",), 0.01),
    "shared": (Shared, ("sgd",), 0.1),
    "transposed": (Transposed, ("sgd",), 0.1),
    "padded": (Padded, ("sgd",), 0.001),
}


def make_optimizer(name, params, lr):
    if name == "sgd":
        return torch.optim.SGD(params, lr=lr, momentum=0.9, weight_decay=5e-4)
    # With the default eps of 1e-8 a weight whose gradients are rounding noise takes steps as large as
    # any other, and two float32 runs part ways for no reason that a test could blame.
    return torch.optim.Adam(params, lr=5e-3, eps=1e-4)


def train(net, optimizer_name, lr, init, indices, images, labels, dtype, memory_format, threads):
    torch.set_num_threads(threads)
    model = net().to(dtype)
    model.load_state_dict({k: v.to(dtype) for k, v in init.items()})
    model = model.to(memory_format=memory_format)
    optimizer = make_optimizer(optimizer_name, model.parameters(), lr)
    # The same formula as the program's: to 0..1 first, then (x - mean) / std.
    pixels = ((images.to(dtype) / 255 - 0.305) / 0.375).unsqueeze(1)
    losses = []
    for index in indices:
        x = pixels[index.long()].to(memory_format=memory_format)
        loss = F.cross_entropy(model(x), labels[index.long()])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    weights = {k: v.detach().to(torch.float64).contiguous() for k, v in model.state_dict().items()}
    return torch.tensor(losses, dtype=torch.float64), weights


def make(net_name):
    net, optimizers, lr = NETS[net_name]
    torch.manual_seed(20)
    images = torch.from_numpy(read_idx("train-images-idx3-ubyte.gz").copy())
    labels = torch.from_numpy(read_idx("train-labels-idx1-ubyte.gz").astype(np.int64))
    init = {k: v.clone() for k, v in net().state_dict().items()}
    order = torch.cat([torch.randperm(len(images)) for _ in range(2)])
    indices = order[: STEPS * BATCH].reshape(STEPS, BATCH).to(torch.int32)

    tensors = {"indices": indices} | {f"init.{k}": v.to(torch.float32) for k, v in init.items()}
    metadata = {"torch": torch.__version__}
    for name in optimizers:
        data = (net, name, lr, init, indices, images, labels)
        losses, weights = train(*data, torch.float64, torch.contiguous_format, 1)
        tensors[f"{name}.losses"] = losses
        tensors |= {f"{name}.final.{k}": v.to(torch.float32) for k, v in weights.items()}
        loss_error = weight_error = mean_square = 0.0
        for memory_format in (torch.contiguous_format, torch.channels_last):
            for threads in (1, 2):
                losses32, weights32 = train(*data, torch.float32, memory_format, threads)
                loss_error = max(loss_error, (losses32 - losses).abs().max().item())
                errors = torch.cat([(v - weights[k]).flatten() for k, v in weights32.items()])
                weight_error = max(weight_error, errors.abs().max().item())
                mean_square = max(mean_square, errors.square().mean().item())
        metadata[f"{name}.loss_error"] = f"{loss_error:.3e}"
        metadata[f"{name}.weight_error"] = f"{weight_error:.3e}"
        metadata[f"{name}.weight_error_rms"] = f"{mean_square**0.5:.3e}"
        print(f"{net_name}, {name}: loss {losses[0]:.4f} to {losses[-1]:.4f}")
    print(metadata)
    save_file(tensors, HERE / f"{net_name}.safetensors", metadata)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("nets", nargs="*", choices=[[], *NETS], metavar="NET")
    for net_name in parser.parse_args().nets or NETS:
        make(net_name)


if __name__ == "__main__":
    main()
