"""Prints the scalars of a folder as TensorBoard's own reader has them: {tag: [[step, value], ...]}.

    python3 read_tensorboard.py FOLDER
"""

import json
import sys

from tensorboard.backend.event_processing import event_accumulator

reader = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={event_accumulator.TENSORS: 0})
reader.Reload()
scalars = {}
for tag in reader.Tags()["scalars"]:
    scalars[tag] = [[event.step, event.value] for event in reader.Scalars(tag)]
for tag in reader.Tags()["tensors"]:
    scalars[tag] = [
        [event.step, float(event.tensor_proto.float_val[0])] for event in reader.Tensors(tag)
    ]
print(json.dumps(scalars))
