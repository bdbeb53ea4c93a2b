"""JAX's side of bench/peers: LeNet with SGD and momentum, the whole training loop.

Variants: jit (one call per step, donated buffers), scan (many steps in one call of lax.scan, the
batches gathered inside). Activations are NHWC, weights HWIO, which is fastest with XLA.
"""

import common

args = common.options()
common.set_threads(args)

import functools  # noqa: E402
import os  # noqa: E402

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # Others are on the GPU too.
os.environ.setdefault("JAX_PLATFORMS", args.device)

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402
from safetensors.numpy import load_file  # noqa: E402

on_gpu = args.device == "cuda"
SCAN = 50 if on_gpu else 20  # Steps in one call.
COMPUTE = jnp.bfloat16 if args.type == "bf16" else jnp.float32
if on_gpu and args.type != "bf16":  # Left to itself, JAX does fp32 with tf32 on a GPU.
    precision = "tensorfloat32" if args.type == "tf32" else "highest"
    jax.config.update("jax_default_matmul_precision", precision)


def starting_weights():
    weights = load_file(args.weights)
    params = {}
    for name, value in weights.items():
        if value.ndim == 4:
            value = value.transpose(2, 3, 1, 0)  # OIHW -> HWIO
        elif name == "fc1.weight":  # its inputs come as (H, W, C) here
            value = value.reshape(128, 50, 4, 4).transpose(2, 3, 1, 0).reshape(800, 128)
        elif value.ndim == 2:
            value = value.T
        params[name] = jnp.asarray(value)
    return params


def conv(x, params, name):
    y = jax.lax.conv_general_dilated(
        x, params[name + ".weight"], (1, 1), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
    )
    return jax.nn.relu(y + params[name + ".bias"])


def pool(x):
    n, h, w, c = x.shape
    x = x[:, : h // 2 * 2, : w // 2 * 2, :].reshape(n, h // 2, 2, w // 2, 2, c)
    return x.mean(axis=(2, 4))


def loss_of(params, x, y):
    params = {name: value.astype(COMPUTE) for name, value in params.items()}
    x = pool(conv(x, params, "conv1"))
    x = pool(conv(x, params, "conv2"))
    x = x.reshape(x.shape[0], -1)
    x = jax.nn.relu(x @ params["fc1.weight"] + params["fc1.bias"])
    logits = x @ params["fc2.weight"] + params["fc2.bias"]
    logits = logits.astype(jnp.float32)
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], axis=1)
    return -picked.mean()


def update(state, index, images, labels):
    params, momenta = state
    loss, grads = jax.value_and_grad(loss_of)(params, images[index], labels[index])
    momenta = jax.tree.map(lambda m, g: common.MOMENTUM * m + g, momenta, grads)
    params = jax.tree.map(lambda p, m: p - common.LEARNING_RATE["lenet"] * m, params, momenta)
    return (params, momenta), loss


one_step = jax.jit(update, donate_argnums=0)


@functools.partial(jax.jit, donate_argnums=0)
def many_steps(state, indices, images, labels):
    return jax.lax.scan(lambda s, index: update(s, index, images, labels), state, indices)


images, labels = common.training_data("lenet", args.data)
images = jnp.asarray(images.transpose(0, 2, 3, 1), dtype=COMPUTE)
labels = jnp.asarray(labels.astype(np.int32))
count = len(images)
initial = starting_weights()
rng = np.random.default_rng(1)
order, position = None, count


def fresh_state():
    return jax.tree.map(jnp.copy, initial), jax.tree.map(jnp.zeros_like, initial)


def next_indices(steps):
    """Samples of the next `steps` steps, (steps, batch), in a fresh order each epoch."""
    global order, position
    rows = []
    for _ in range(steps):
        if position + args.batch > count:
            order = rng.permutation(count).astype(np.int32)
            position = 0
        rows.append(order[position : position + args.batch])
        position += args.batch
    return np.stack(rows)


def advance(indices):
    """Does the steps of `indices` (steps, batch) and returns their losses."""
    global state
    result = []
    if args.variant == "scan":
        for begin in range(0, len(indices), SCAN):
            part = indices[begin : begin + SCAN]
            state, losses_of_part = many_steps(state, part, images, labels)
            result.append(losses_of_part)
    else:
        for index in indices:
            state, loss = one_step(state, index, images, labels)
            result.append(loss)
    return result


def run(steps):
    for begin in range(0, steps, SCAN):  # The device computes while the next indices are made.
        advance(next_indices(min(SCAN, steps - begin)))
    jax.block_until_ready(state)


def losses(steps):
    global state
    state = fresh_state()
    index = np.arange(steps * args.batch, dtype=np.int32) % count
    return np.concatenate([np.atleast_1d(x) for x in advance(index.reshape(steps, args.batch))])


def memory():
    statistics = jax.devices()[0].memory_stats() if on_gpu else None
    return (statistics or {}).get("peak_bytes_in_use")


state = fresh_state()
common.serve(run, losses, memory)
