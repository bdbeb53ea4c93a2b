"""What the peer programs share: their options, the data, and the line protocol of bench-peers.

Every peer is a process that reads lines "run N" from stdin, does N training steps and answers with
the seconds they took. So rounds of different programs can be interleaved on one machine. With
--losses N it prints the losses of the first N steps instead, on the samples in file order.
"""

import argparse
import gzip
import json
import os
import sys
import time

import numpy as np

LEARNING_RATE = 0.05
MOMENTUM = 0.9


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", required=True, help="folder of the IDX files")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--variant", default="")
    parser.add_argument("--weights", help="safetensors file with the starting weights")
    parser.add_argument("--save-weights", help="write the starting weights there and stop")
    parser.add_argument("--losses", type=int, help="print that many losses and stop")
    return parser.parse_args()


def set_threads(count):
    """Must run before the numeric libraries are imported. JAX takes its threads from the cores that
    the process may use, so the process is bound to that many."""
    os.environ["OMP_NUM_THREADS"] = str(count)
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[:count])


def read_idx(path):
    with gzip.open(path) as file:
        raw = file.read()
    dims = raw[3]
    shape = np.frombuffer(raw, ">i4", dims, 4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * dims).reshape(shape)


def training_data(folder):
    """All training images, normalised, (N, 28, 28) float32; and their labels, int64. Normalising
    once and keeping the floats is the quickest form for a run without augmentation."""
    images = read_idx(os.path.join(folder, "train-images-idx3-ubyte.gz"))
    labels = read_idx(os.path.join(folder, "train-labels-idx1-ubyte.gz"))
    normalised = (images.astype(np.float32) / 255.0 - 0.286) / 0.353
    return normalised.astype(np.float32), labels.astype(np.int64)


def serve(run, losses, args):
    """run(n) does n steps and returns when their results are there; losses(n) returns n losses."""
    if args.losses:
        print(json.dumps([float(x) for x in losses(args.losses)]), flush=True)
        return
    for line in sys.stdin:
        words = line.split()
        if len(words) != 2 or words[0] != "run":
            sys.exit(f"expected 'run N', found '{line.strip()}'")
        begin = time.perf_counter()
        run(int(words[1]))
        print(f"{time.perf_counter() - begin:.6f}", flush=True)
