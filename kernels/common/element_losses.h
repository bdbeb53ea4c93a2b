// The formulas of elementwise losses as in torch.nn, written once for every backend. Each is a
// function of an output x, its target y, and the weight of the output in `pos_weight`.
//
// A formula has `value`, `gradient` (d value / d x), and `predicted`: the target that x predicts.
#pragma once

#include <cmath>
#include <variant>

#include "kernels/base/host_device.h"
#include "kernels/common/activations.h"

namespace dpt::element_losses {

struct Mse {
  DPT_HOST_DEVICE float value(float x, float y, float) const { return (x - y) * (x - y); }
  DPT_HOST_DEVICE float gradient(float x, float y, float) const { return 2.0F * (x - y); }
  DPT_HOST_DEVICE float predicted(float x) const { return x; }
};

/// |x - y|. The gradient at x = y is 0; NaN stays NaN.
struct L1 {
  DPT_HOST_DEVICE float value(float x, float y, float) const { return fabsf(x - y); }
  DPT_HOST_DEVICE float gradient(float x, float y, float) const {
    const float d = x - y;
    return d > 0.0F ? 1.0F : d < 0.0F ? -1.0F : d;
  }
  DPT_HOST_DEVICE float predicted(float x) const { return x; }
};

/// (x - y)^2 / (2 beta) within beta of the target, |x - y| - beta / 2 outside.
struct SmoothL1 {
  float beta;
  DPT_HOST_DEVICE float value(float x, float y, float) const {
    const float d = fabsf(x - y);
    return d < beta ? 0.5F * d * d / beta : d - 0.5F * beta;
  }
  DPT_HOST_DEVICE float gradient(float x, float y, float) const {
    const float d = x - y;
    return fabsf(d) < beta ? d / beta : d > 0.0F ? 1.0F : d < 0.0F ? -1.0F : d;
  }
  DPT_HOST_DEVICE float predicted(float x) const { return x; }
};

/// -(p y log(s) + (1 - y) log(1 - s)) with s = 1 / (1 + e^-x), without overflow.
struct BceWithLogits {
  DPT_HOST_DEVICE float value(float x, float y, float pos_weight) const {
    // log(1 + e^-x)
    const float softplus = (x < 0.0F ? -x : 0.0F) + log1pf(exp_nonpositive(x < 0.0F ? x : -x));
    return (1.0F - y) * x + (1.0F + (pos_weight - 1.0F) * y) * softplus;
  }
  DPT_HOST_DEVICE float gradient(float x, float y, float pos_weight) const {
    return (1.0F - y) - (1.0F + (pos_weight - 1.0F) * y) * activations::sigmoid(-x);
  }
  DPT_HOST_DEVICE float predicted(float x) const { return activations::sigmoid(x); }
};

/// List of the formulas. Every backend compiles each of them.
using Formula = std::variant<Mse, L1, SmoothL1, BceWithLogits>;

}  // namespace dpt::element_losses
