#!/usr/bin/env python3
"""Writes pretrained_names.json: the names and shapes in timm's files of weights for the networks of
engine/zoo/pretrained.cpp, each with torchvision's name of the same tensor, in the order of the
networks' state_dicts. Needs torch, torchvision and timm; downloads nothing.

That the pairs are right is tested here: with random weights, timm's network and torchvision's with the
same tensors must have the same outputs. Where they differ (another eps, other padding), the network gets
no row."""

import json
import pathlib

import timm
import torch
import torchvision

NETWORKS = {
    "resnet18": "resnet18.tv_in1k",
    "resnet34": "resnet34.tv_in1k",
    "resnet50": "resnet50.tv_in1k",
    "vgg11": "vgg11.tv_in1k",
    "vgg11_bn": "vgg11_bn.tv_in1k",
    "vgg16": "vgg16.tv_in1k",
    "vgg16_bn": "vgg16_bn.tv_in1k",
    "densenet121": "densenet121.tv_in1k",
    "mobilenet_v2": "mobilenetv2_100.ra_in1k",
    "mobilenet_v3_small": "mobilenetv3_small_100.lamb_in1k",
    "convnext_tiny": "convnext_tiny.fb_in1k",
}


def randomize(state):
    """Sets every tensor, including biases, scales and running statistics, to values that affect the outputs."""
    for name, tensor in state.items():
        if name.endswith("running_var"):
            tensor.uniform_(0.5, 1.5)
        elif name.endswith(("running_mean", "bias")):
            tensor.uniform_(-0.1, 0.1)
        elif tensor.dim() == 1:
            tensor.uniform_(0.5, 1.5)


def main():
    torch.manual_seed(1)
    pairs = {}
    for network, file in NETWORKS.items():
        theirs = timm.create_model(file, pretrained=False).eval()
        ours = getattr(torchvision.models, network)().eval()
        state = theirs.state_dict()
        wanted = ours.state_dict()
        assert theirs.pretrained_cfg["hf_hub_id"] == f"timm/{file}", network
        assert len(state) == len(wanted), network
        randomize(state)
        rows, renamed = [], {}
        for (name, tensor), (our_name, our_tensor) in zip(state.items(), wanted.items()):
            assert tensor.numel() == our_tensor.numel(), (network, name, our_name)
            renamed[our_name] = tensor.reshape(our_tensor.shape)
            rows.append([name, list(tensor.shape), our_name])
        ours.load_state_dict(renamed)
        images = torch.randn(2, 3, 224, 224)
        with torch.no_grad():
            a, b = theirs(images), ours(images)
        difference = ((a - b).abs().max() / a.abs().max()).item()
        print(f"{network}: {len(rows)} tensors, outputs differ by {difference:.2g} of the largest")
        if difference < 1e-5:
            pairs[network] = {"file": f"hf://timm/{file}", "tensors": rows}
    lines = []
    for network, row in pairs.items():
        tensors = ",\n".join("  " + json.dumps(each) for each in row["tensors"])
        lines.append(f'"{network}": {{"file": {json.dumps(row["file"])}, "tensors": [\n{tensors}]}}')
    path = pathlib.Path(__file__).resolve().parent / "pretrained_names.json"
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
