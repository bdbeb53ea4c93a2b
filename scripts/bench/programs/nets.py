"""What a comparison of bench/peers knows of each network."""

# Forward and backward of one image; a multiply-add counts as 2. By the definition of a convolution:
# Winograd's needs fewer multiplications, and may be faster than this floor.
MFLOP_PER_IMAGE = {
    "lenet": 13.26,
    "resnet20": 244.0,
    "resnet18": 3329.0,
    "resnet50": 24300.0,
    "mobilenet_v2": 1780.0,
}
# Pixels of a side. Those of 32 train on files in CIFAR-10's format, those of 224, ImageNet's size, on IDX.
SIDE = {"lenet": 28, "resnet20": 32, "resnet18": 32, "resnet50": 224, "mobilenet_v2": 224}
# Small where there are batch statistics: at 0.05 two programs that round differently are 1e-3 apart
# after ten steps, whatever they compute, and ResNet-18 at 0.002 (PyTorch compiled and not: 2.8e-3).
# PyTorch's MobileNetV2 with weights that are off by 6e-8 is at 0.0002 off by 5e-3 after 13 steps, at
# 0.00002 by 2e-4 after 11. Its ResNet-50 with such weights is off by 5e-2 after 12 steps at 0.00002,
# and by 5e-5 after 10 steps at 0.0000002.
LEARNING_RATE = {
    "lenet": 0.05,
    "resnet20": 0.002,
    "resnet18": 0.0005,
    "resnet50": 0.0000002,
    "mobilenet_v2": 0.00002,
}
