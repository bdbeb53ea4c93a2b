"""The networks of bench/peers in PyTorch, with the names that torchvision and dpt's zoo give their
tensors. Those that torchvision has as they are come from there."""

import torch
import torch.nn.functional as F
from torch import nn


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 3)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        x = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        x = F.avg_pool2d(F.relu(self.conv2(x)), 2)
        return self.fc2(F.relu(self.fc1(torch.flatten(x, 1))))


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut (He et al., 2015, arXiv:1512.03385)."""

    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)
        self.downsample = None
        if stride != 1 or inputs != outputs:
            self.downsample = nn.Sequential(
                nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs)
            )

    def forward(self, x):
        shortcut = x if self.downsample is None else self.downsample(x)
        y = F.relu(self.bn1(self.conv1(x)), inplace=True)
        return F.relu(self.bn2(self.conv2(y)) + shortcut, inplace=True)


class ResNet(nn.Module):
    """A ResNet whose first layer is a 3x3 convolution, for pictures of 32x32."""

    def __init__(self, widths, blocks):
        super().__init__()
        self.conv1 = nn.Conv2d(3, widths[0], 3, 1, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(widths[0])
        inputs, self.stages = widths[0], []
        for number, width in enumerate(widths, 1):
            stage = []
            for block in range(blocks):
                stage.append(BasicBlock(inputs, width, 2 if number > 1 and block == 0 else 1))
                inputs = width
            self.stages.append(f"layer{number}")
            setattr(self, self.stages[-1], nn.Sequential(*stage))
        self.fc = nn.Linear(inputs, 10)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        for stage in self.stages:
            x = getattr(self, stage)(x)
        return self.fc(torch.flatten(F.adaptive_avg_pool2d(x, 1), 1))


def from_torchvision(name):
    """Without dropout: every program draws other numbers."""
    from torchvision import models  # The others do not need it.

    model = getattr(models, name)(num_classes=10)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    return model


MODELS = {
    "lenet": LeNet,
    "resnet20": lambda: ResNet([16, 32, 64], 3),
    "resnet18": lambda: ResNet([64, 128, 256, 512], 2),
    "resnet50": lambda: from_torchvision("resnet50"),
    "mobilenet_v2": lambda: from_torchvision("mobilenet_v2"),
}
