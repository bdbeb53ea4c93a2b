"""What the peer programs share: their options, the data, and the line protocol of bench/peers.

Every peer is a process that reads lines "run N" from stdin, does N training steps and answers with
their duration in seconds. So rounds of different programs can be interleaved on one machine. A line
"losses N" makes it start again and answer with the losses of the first N steps, on the samples in
file order, done the way that is timed. "memory" asks for its peak device memory, in bytes.

What the types mean: fp32 without tensor cores, tf32 with them, bf16 for activations and
for copies of the weights, with fp32 weights, sums and loss.
"""

import argparse
import gzip
import json
import os
import sys
import time

import numpy as np

from nets import LEARNING_RATE, SIDE  # noqa: F401 (for those that import common)

MOMENTUM = 0.9


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--net", default="lenet")
    parser.add_argument("--data", required=True, help="folder of the data set's files")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--variant", default="")
    parser.add_argument("--weights", required=True, help="safetensors file to start from")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--type", default="fp32", choices=["fp32", "tf32", "bf16"])
    return parser.parse_args()


def set_threads(args):
    """Must run before the numeric libraries are imported. JAX takes its threads from the cores that
    the process may use, so the process is bound to that many. With a GPU all are left to it."""
    count = args.threads
    if args.device == "cuda":
        return
    os.environ["OMP_NUM_THREADS"] = str(count)
    allowed = sorted(os.sched_getaffinity(0))
    # One of several processes (torchrun) has cores of its own.
    first = int(os.environ.get("LOCAL_RANK", "0")) * count
    os.sched_setaffinity(0, allowed[first : first + count] or allowed)


def read_idx(path):
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        raw = file.read()
    dims = raw[3]
    shape = np.frombuffer(raw, ">i4", dims, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dims).reshape(shape)


def training_data(net, folder):
    """All training images, normalised, (N, C, H, W) float32; and their labels, int64. Normalising
    once and keeping the floats is the quickest form for a run without augmentation."""
    if net == "lenet":
        images = read_idx(os.path.join(folder, "train-images-idx3-ubyte.gz"))[:, None]
        labels = read_idx(os.path.join(folder, "train-labels-idx1-ubyte.gz"))
        mean, std = 0.286, 0.353
    elif SIDE[net] == 224:
        images = read_idx(os.path.join(folder, "train-images-idx4-ubyte")).transpose(0, 3, 1, 2)
        labels = read_idx(os.path.join(folder, "train-labels-idx1-ubyte"))
        mean, std = 0.5, 0.25
    else:
        files = [os.path.join(folder, f"data_batch_{number}.bin") for number in range(1, 6)]
        records = np.concatenate([np.fromfile(file, np.uint8) for file in files]).reshape(-1, 3073)
        images, labels = records[:, 1:].reshape(-1, 3, 32, 32), records[:, 0]
        mean, std = 0.5, 0.25
    normalised = (images.astype(np.float32) / 255.0 - mean) / std
    return normalised.astype(np.float32), labels.astype(np.int64)


def serve(run, losses, memory):
    """run(n) does n steps and returns when their results are there; losses(n) starts anew and
    returns n losses; memory() returns bytes, or None."""
    print("ready", flush=True)
    for line in sys.stdin:
        words = line.split()
        if words == ["memory"]:
            print(json.dumps(memory()), flush=True)
            continue
        if len(words) != 2 or words[0] not in ("run", "losses"):
            sys.exit(f"expected 'run N', 'losses N' or 'memory', found '{line.strip()}'")
        count = int(words[1])
        if words[0] == "losses":
            print(json.dumps([float(x) for x in losses(count)]), flush=True)
            continue
        begin = time.perf_counter()
        run(count)
        print(f"{time.perf_counter() - begin:.6f}", flush=True)
