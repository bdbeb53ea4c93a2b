"""Writes torch_state.pth: what torch.save makes of views, ties, and types of numbers. Needs torch."""
import io
import pathlib
from collections import OrderedDict

import torch

weight = torch.arange(12.0).reshape(3, 4)
half = (torch.arange(6) - 2).half().reshape(2, 3)
state = OrderedDict(
    [
        ("fc.weight", weight),
        ("tied.weight", weight),
        ("turned.weight", weight.t()),
        ("part.weight", weight[1:, 1::2]),
        ("half.weight", half.t()),
        ("count", torch.tensor(7)),
    ]
)
state._metadata = OrderedDict([("", {"version": 1})])  # as Module.state_dict has
ema = {"fc.weight": torch.nn.Parameter(weight[:1].bfloat16() / 2)}
found = {"epoch": 3, "arch": "small", "lrs": [0.1, 0.01], "best": None, "state_dict": state, "ema": {"module": ema}}
buffer = io.BytesIO()
torch.save(found, buffer)
pathlib.Path(__file__).with_name("torch_state.pth").write_bytes(buffer.getvalue())
