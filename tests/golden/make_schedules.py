#!/usr/bin/env python3
"""Makes tests/engine/schedules/torch_rates.h: the learning rates of torch.optim.lr_scheduler.

    python3 tests/golden/make_schedules.py        needs torch

Each array holds the learning rate of successive updates of an SGD optimizer, read before
optimizer.step(), with scheduler.step() after it. The plateau cases are the learning rates after
scheduler.step(value) for each of the values of `plateau_values`.
"""

import pathlib

import torch
from torch.optim import lr_scheduler as s

OUT = pathlib.Path(__file__).resolve().parent.parent / "engine/schedules/torch_rates.h"


def make_optimizer(lr):
    return torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)


def rates(lr, count, make):
    optimizer = make_optimizer(lr)
    scheduler = make(optimizer)
    found = []
    for _ in range(count):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        scheduler.step()
    return found


def warmed(after):
    """A warm-up of four updates, then `after`, which begins at 0 when the warm-up is over."""
    return lambda o: s.SequentialLR(o, [s.LinearLR(o, start_factor=0.25, total_iters=4), after(o)], [4])


def one_cycle(**options):
    return lambda o: s.OneCycleLR(o, max_lr=0.5, total_steps=20, cycle_momentum=False, **options)


PLATEAU_VALUES = [2.0, 1.5, 1.5, 1.49995, 1.6, 1.7, 1.4, 1.4, 1.4, 1.4, 1.4, 1.4, 1.4, 1.2, 1.3, 1.3, 1.3, 1.3, 1.3,
                  1.3, float("nan"), 1.3, 1.3, 1.3]


def plateau(lr, values, **options):
    optimizer = make_optimizer(lr)
    scheduler = s.ReduceLROnPlateau(optimizer, **options)
    found = []
    for value in values:
        scheduler.step(value)
        found.append(optimizer.param_groups[0]["lr"])
    return found


CASES = {
    "step": rates(0.3, 9, lambda o: s.StepLR(o, 2, 0.5)),
    "multistep": rates(0.3, 9, lambda o: s.MultiStepLR(o, [2, 5])),
    "cosine": rates(0.3, 11, lambda o: s.CosineAnnealingLR(o, 10, eta_min=0.02)),
    "exponential": rates(0.3, 9, lambda o: s.ExponentialLR(o, 0.9)),
    "exponential_warmed": rates(0.3, 12, warmed(lambda o: s.ExponentialLR(o, 0.9))),
    "polynomial": rates(0.3, 8, lambda o: s.PolynomialLR(o)),
    "polynomial_power": rates(0.3, 12, lambda o: s.PolynomialLR(o, 10, 0.9)),
    "linear": rates(0.3, 8, lambda o: s.LinearLR(o)),
    "linear_decay": rates(0.3, 10, lambda o: s.LinearLR(o, 1.0, 0.1, 8)),
    "cosine_restarts": rates(0.3, 14, lambda o: s.CosineAnnealingWarmRestarts(o, 4)),
    "cosine_restarts_longer": rates(0.3, 32, lambda o: s.CosineAnnealingWarmRestarts(o, 2, 3, 0.01)),
    "one_cycle": rates(0.1, 20, one_cycle()),
    "one_cycle_linear": rates(0.1, 20, one_cycle(anneal_strategy="linear", pct_start=0.25, div_factor=10.0,
                                                 final_div_factor=100.0)),
    "one_cycle_three_phase": rates(0.1, 20, one_cycle(three_phase=True, pct_start=0.4)),
    "one_cycle_no_rise": rates(0.1, 20, one_cycle(pct_start=0.02)),
    "plateau_values": PLATEAU_VALUES,
    "plateau": plateau(0.3, PLATEAU_VALUES, patience=2),
    "plateau_all": plateau(0.3, PLATEAU_VALUES, factor=0.5, patience=1, threshold=0.05, threshold_mode="abs",
                           cooldown=2, min_lr=0.03),
    "plateau_max": plateau(0.3, PLATEAU_VALUES, mode="max", factor=0.5, patience=3, threshold=0.01),
    "plateau_eps": plateau(0.3, PLATEAU_VALUES, factor=0.1, patience=0, eps=0.01),
}


def text(value):
    return "std::numeric_limits<double>::quiet_NaN()" if value != value else repr(float(value))


def main():
    lines = [
        "// Learning rates of torch.optim.lr_scheduler. Made by tests/golden/make_schedules.py, which says how,",
        f"// with PyTorch {torch.__version__.split('+')[0]}.",
        "#pragma once",
        "",
        "#include <limits>",
        "",
        "namespace dpt::torch_rates {",
        "",
        "// clang-format off",
    ]
    for name, values in CASES.items():
        lines.append(f"inline constexpr double {name}[] = {{")
        lines += [f"    {text(value)}," for value in values]
        lines.append("};")
    lines += ["// clang-format on", "", "}  // namespace dpt::torch_rates", ""]
    OUT.write_text("\n".join(lines))


if __name__ == "__main__":
    main()
