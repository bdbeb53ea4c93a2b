"""torch_data.py FOLDER WORKERS SECONDS random|exact: images a second from torchvision's DataLoader.

ImageFolder with RandomResizedCrop(224), or Resize(256) and CenterCrop(224), to batches of 64 uint8 tensors:
what `dpt bench --data` makes of the configs in scripts/bench/data. Starting the workers and their first batches are not counted.
"""

import sys
import time

import torch
from torchvision import transforms
from torchvision.datasets import ImageFolder

BATCH = 64


def main():
    folder, workers, seconds, mode = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    if mode == "random":
        steps = [transforms.RandomResizedCrop(224)]
    else:
        steps = [transforms.Resize(256), transforms.CenterCrop(224)]
    data = ImageFolder(folder, transforms.Compose([*steps, transforms.PILToTensor()]))
    sampler = torch.utils.data.RandomSampler(data, replacement=True, num_samples=10**7)
    loader = torch.utils.data.DataLoader(data, BATCH, sampler=sampler, num_workers=workers)
    batches = iter(loader)
    for _ in range(3 * workers):  # two wait for each worker
        next(batches)
    begin, images = time.perf_counter(), 0
    while time.perf_counter() - begin < seconds:
        images += len(next(batches)[0])
    print(f"{images / (time.perf_counter() - begin):.1f}")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
