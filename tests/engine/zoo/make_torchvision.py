#!/usr/bin/env python3
"""Writes torchvision.txt: names and shapes of torchvision's networks, as their state_dict has them.

    python3 make_torchvision.py > torchvision.txt      # needs torchvision (made with 0.29)

A line with the network's name and number of parameters, then one for each tensor: name and shape.
"""
import torchvision.models

NETS = [
    "alexnet", "vgg11_bn", "vgg16", "resnet18", "resnet50", "squeezenet1_1", "mobilenet_v2",
    "mobilenet_v3_small", "densenet121", "convnext_tiny",
]  # fmt: skip
for name in NETS:
    net = getattr(torchvision.models, name)(num_classes=1000)
    print(name, sum(p.numel() for p in net.parameters()))
    for tensor, value in net.state_dict().items():
        print("  " + tensor, "x".join(str(size) for size in value.shape) or "scalar")
