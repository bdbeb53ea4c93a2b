"""What a comparison of bench-peers knows of each network."""

# Forward and backward of one image, 28x28x1 or 32x32x3; a multiply-add counts as 2. By the definition of
# a convolution: Winograd's needs fewer multiplications, and may be faster than this floor.
MFLOP_PER_IMAGE = {"lenet": 13.26, "resnet20": 244.0, "resnet18": 3329.0}
# Small where there are batch statistics: at 0.05 two programs that round differently are 1e-3 apart
# after ten steps, whatever they compute, and ResNet-18 at 0.002 (PyTorch compiled and not: 2.8e-3).
LEARNING_RATE = {"lenet": 0.05, "resnet20": 0.002, "resnet18": 0.0005}
