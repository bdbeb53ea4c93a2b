"""The reference for the floor on a GPU: GFLOP/s of 8192 x 8192 matrix products of random numbers in fp32
without tensor cores, in tf32 and in bf16, as PyTorch gets them from cuBLAS. Prints JSON."""

import json

import torch

SIZE, REPEATS = 8192, 10


def gflops(number_type):
    dtype = torch.bfloat16 if number_type == "bf16" else torch.float32
    torch.backends.cuda.matmul.allow_tf32 = number_type == "tf32"
    a, b = (torch.randn(SIZE, SIZE, device="cuda", dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    best = 0.0
    for _ in range(4):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(REPEATS):
            torch.mm(a, b, out=out)
        end.record()
        end.synchronize()
        best = max(best, 2 * SIZE**3 * REPEATS / begin.elapsed_time(end) / 1e6)
    return best


print(json.dumps({number_type: gflops(number_type) for number_type in ("fp32", "tf32", "bf16")}))
