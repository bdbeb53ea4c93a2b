#!/usr/bin/env python3
"""Makes tests/golden/optimizers.json: what each optimizer does in 24 updates.

    python3 tests/golden/make_golden_optimizers.py         needs torch

Two tensors of 12 and 7 weights, so that a flat buffer of both ends within a vector; only optimizers with
norms of each tensor tell them apart. Weights and
gradients are a function of their place and the step (see `uniform`, which tests/engine/optimizers/golden.h has too), so the file
holds none. From step 13 on the learning rate is half of what it was, and the gradient of step 3 is
multiplied by a quarter, as clipping does.

The weights after updates 1 and 24 are those of a float64 run. How far PyTorch's own float32 run is from
them is the case's `error`, but at least one unit in the last place of the largest weight; the test
allows a small multiple. What torch.optim does not have is written here as the paper has it.
"""

import json
import pathlib

import torch

HERE = pathlib.Path(__file__).resolve().parent
SIZES = (12, 7)
STEPS = 24


def uniform(step, place):
    """In [-1, 1), exact in float32."""
    mixed = (place + 1) * 2654435761 + (step + 1) * 2246822519
    mixed = (mixed ^ (mixed >> 15)) * 3266489917 & 0xFFFFFFFF
    return (mixed >> 8) / 2**23 - 1


class Own(torch.optim.Optimizer):
    """An optimizer of one function of a tensor, its gradient and its state."""

    def __init__(self, params, maximize=False, **options):
        super().__init__(params, {"lr": None} | self.DEFAULTS | options)
        self.maximize = maximize

    def step(self):
        for group in self.param_groups:
            for param in group["params"]:
                state = self.state[param]
                state["t"] = state.get("t", 0) + 1
                with torch.no_grad():
                    grad = -param.grad if self.maximize else param.grad
                    self.update(param, grad, state, **{k: v for k, v in group.items() if k != "params"})


class Yogi(Own):
    """Zaheer et al. 2018, algorithm 2, with Adam's bias corrections."""

    DEFAULTS = {
        "lr": 1e-2, "betas": (0.9, 0.999), "eps": 1e-3, "weight_decay": 0,
        "initial_accumulator_value": 1e-6,
    }  # fmt: skip

    def update(self, p, g, s, lr, betas, eps, weight_decay, initial_accumulator_value):
        g = g + weight_decay * p
        m = s.setdefault("m", torch.zeros_like(p))
        v = s.setdefault("v", torch.full_like(p, initial_accumulator_value))
        m.mul_(betas[0]).add_(g, alpha=1 - betas[0])
        v.sub_((1 - betas[1]) * torch.sign(v - g * g) * g * g)
        m_hat = m / (1 - betas[0] ** s["t"])
        v_hat = v / (1 - betas[1] ** s["t"])
        p.sub_(lr * m_hat / (v_hat.sqrt() + eps))


class Lion(Own):
    """Chen et al. 2023, algorithm 2."""

    DEFAULTS = {"lr": 1e-4, "betas": (0.9, 0.99), "weight_decay": 0}

    def update(self, p, g, s, lr, betas, weight_decay):
        m = s.setdefault("m", torch.zeros_like(p))
        c = betas[0] * m + (1 - betas[0]) * g
        p.sub_(lr * (torch.sign(c) + weight_decay * p))
        m.mul_(betas[1]).add_(g, alpha=1 - betas[1])


class LARS(Own):
    """You et al. 2017, algorithm 1."""

    DEFAULTS = {
        "lr": 0.1, "momentum": 0.9, "weight_decay": 5e-4, "trust_coefficient": 1e-3, "eps": 1e-8,
        "always_adapt": True,
    }  # fmt: skip

    def update(self, w, g, s, lr, momentum, weight_decay, trust_coefficient, eps, always_adapt):
        v = s.setdefault("v", torch.zeros_like(w))
        local = trust_coefficient * w.norm() / (g.norm() + weight_decay * w.norm() + eps)
        if not always_adapt and weight_decay == 0:
            local = 1
        v.mul_(momentum).add_(lr * local * (g + weight_decay * w))
        w.sub_(v)


class LAMB(Own):
    """You et al. 2020, algorithm 2, with the identity for phi."""

    DEFAULTS = {
        "lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 1e-2, "always_adapt": True,
    }  # fmt: skip

    def update(self, x, g, s, lr, betas, eps, weight_decay, always_adapt):
        m = s.setdefault("m", torch.zeros_like(x))
        v = s.setdefault("v", torch.zeros_like(x))
        m.mul_(betas[0]).add_(g, alpha=1 - betas[0])
        v.mul_(betas[1]).add_(g * g, alpha=1 - betas[1])
        r = m / (1 - betas[0] ** s["t"]) / ((v / (1 - betas[1] ** s["t"])).sqrt() + eps)
        u = r + weight_decay * x
        trust = x.norm() / u.norm() if always_adapt or weight_decay != 0 else 1
        x.sub_(lr * trust * u)


OWN = {each.__name__: each for each in (Yogi, Lion, LARS, LAMB)}


def cases():
    decay = {"weight_decay": 0.1}
    yield "SGD", {"lr": 0.1}
    yield "SGD", {"lr": 0.1, "maximize": True} | decay
    yield "SGD", {"lr": 0.1, "momentum": 0.9}
    yield "SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.25} | decay
    yield "SGD", {"lr": 0.05, "momentum": 0.75, "nesterov": True, "maximize": True} | decay
    for name in ("Adam", "AdamW"):
        yield name, {}
        yield name, {"lr": 0.05, "betas": [0.5, 0.75], "eps": 1e-3} | decay
        yield name, {"lr": 0.05, "amsgrad": True, "maximize": True, "betas": [0.8, 0.6]} | decay
    for name in ("NAdam", "RAdam"):
        yield name, {}
        yield name, {"lr": 0.05, "betas": [0.5, 0.75], "eps": 1e-3} | decay
        yield name, {"lr": 0.05, "maximize": True, "decoupled_weight_decay": True} | decay
    yield "NAdam", {"lr": 0.05, "momentum_decay": 0.5}
    yield "NAdam", {"lr": 0.05, "momentum_decay": 0.0}
    yield "RMSprop", {}
    yield "RMSprop", {"alpha": 0.8, "eps": 1e-3, "maximize": True} | decay
    yield "RMSprop", {"momentum": 0.9} | decay
    yield "RMSprop", {"centered": True} | decay
    yield "RMSprop", {"centered": True, "momentum": 0.5, "alpha": 0.9, "maximize": True}
    yield "Adagrad", {}
    yield "Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.5} | decay
    yield "Adagrad", {"lr": 0.1, "eps": 0.1, "maximize": True}
    yield "Adadelta", {}
    yield "Adadelta", {"lr": 0.5, "rho": 0.5, "eps": 1e-3, "maximize": True} | decay
    yield "Yogi", {}
    yield "Yogi", {"lr": 0.05, "betas": [0.5, 0.75], "initial_accumulator_value": 0.25} | decay
    yield "Yogi", {"lr": 0.05, "eps": 1e-2, "maximize": True}
    yield "Lion", {}
    yield "Lion", {"lr": 0.01, "betas": [0.5, 0.75], "maximize": True} | decay
    yield "LARS", {}
    yield "LARS", {"lr": 1.0, "momentum": 0.5, "trust_coefficient": 0.05, "maximize": True} | decay
    yield "LARS", {"lr": 0.5, "eps": 0.5, "trust_coefficient": 0.1, "weight_decay": 0.0}
    yield "LARS", {"lr": 0.05, "always_adapt": False, "weight_decay": 0.0}
    yield "LAMB", {}
    yield "LAMB", {"lr": 0.05, "betas": [0.5, 0.75], "eps": 1e-3, "maximize": True} | decay
    yield "LAMB", {"lr": 0.05, "weight_decay": 0.0}
    yield "LAMB", {"lr": 0.05, "always_adapt": False, "weight_decay": 0.0}


def run(name, options, dtype):
    torch.set_default_dtype(dtype)  # NAdam keeps a product in it
    params, first = [], 0
    for size in SIZES:
        values = [uniform(0, first + i) for i in range(size)]
        params.append(torch.nn.Parameter(torch.tensor(values, dtype=dtype)))
        first += size
    options = {k: tuple(v) if k == "betas" else v for k, v in options.items()}
    optimizer = OWN[name](params, **options) if name in OWN else getattr(torch.optim, name)(params, **options)
    lr = optimizer.param_groups[0]["lr"]
    after = {}
    for step in range(1, STEPS + 1):
        first = 0
        for param in params:
            grads = [uniform(step, first + i) for i in range(len(param))]
            param.grad = torch.tensor(grads, dtype=dtype) * (0.25 if step == 3 else 1)
            first += len(param)
        for group in optimizer.param_groups:
            group["lr"] = lr if step < 13 else lr / 2
        optimizer.step()
        if step in (1, STEPS):
            after[step] = torch.cat([p.detach() for p in params]).to(torch.float64)
    return lr, after


def main():
    made = []
    for name, options in cases():
        lr, want = run(name, options, torch.float64)
        _, got = run(name, options, torch.float32)
        error = max((got[k] - want[k]).abs().max().item() for k in want)
        error = max(error, 2**-23 * max(want[k].abs().max().item() for k in want))
        made.append(
            {
                "type": name,
                "options": options,
                "lr": lr,
                "error": float(f"{error:.2e}"),
                "first": [float(f"{v:.12g}") for v in want[1].tolist()],
                "last": [float(f"{v:.12g}") for v in want[STEPS].tolist()],
            }
        )
        print(f"{name} {options}: float32 differs by {error:.1e}")
    lines = ",\n".join(json.dumps(case) for case in made)
    path = HERE / "optimizers.json"
    path.write_text(f'{{"torch": "{torch.__version__}", "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main()
