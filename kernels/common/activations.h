// The formulas of the activation functions as in torch.nn, written once for every backend.
//
// A formula has `value(x)` and `gradient(v, dy)`. If kOfY is true, v is y, so backward does not
// need x, and forward may overwrite it. Otherwise v is x.
#pragma once

#include <cmath>
#include <variant>

#include "kernels/base/host_device.h"
#include "kernels/common/softmax.h"

namespace dpt::activations {

/// Returns 1 / (1 + e^-x). No exponential overflows.
DPT_HOST_DEVICE inline float sigmoid(float x) {
  const float e = exp_nonpositive(x < 0.0F ? x : -x);
  return (x < 0.0F ? e : 1.0F) / (1.0F + e);
}

/// LeakyReLU. With a slope of at least 0, y has x's sign, so backward may use y (kY).
template <bool kY>
struct LeakyRelu {
  static constexpr bool kOfY = kY;
  float slope;
  DPT_HOST_DEVICE float value(float x) const { return x > 0.0F ? x : x * slope; }
  DPT_HOST_DEVICE float gradient(float v, float dy) const { return v > 0.0F ? dy : dy * slope; }
};

struct Relu6 {
  static constexpr bool kOfY = true;
  DPT_HOST_DEVICE float value(float x) const { return x <= 0.0F ? 0.0F : x >= 6.0F ? 6.0F : x; }
  DPT_HOST_DEVICE float gradient(float y, float dy) const {
    return y <= 0.0F || y >= 6.0F ? 0.0F : dy;
  }
};

/// x times the cumulative normal distribution.
struct Gelu {
  static constexpr bool kOfY = false;
  DPT_HOST_DEVICE static float cumulative(float x) {
    constexpr float kInverseSqrt2 = 0.707106781F;
    return 0.5F * (1.0F + erff(x * kInverseSqrt2));
  }
  DPT_HOST_DEVICE float value(float x) const { return x * cumulative(x); }
  DPT_HOST_DEVICE float gradient(float x, float dy) const {
    constexpr float kInverseSqrt2Pi = 0.398942280F;
    return dy * (cumulative(x) + x * kInverseSqrt2Pi * exp_nonpositive(-0.5F * x * x));
  }
};

/// GELU with `approximate: tanh`.
struct GeluTanh {
  static constexpr bool kOfY = false;
  static constexpr float kSqrt2OverPi = 0.797884561F, kCubic = 0.044715F;
  DPT_HOST_DEVICE static float inner(float x) {
    return tanhf(kSqrt2OverPi * (x + kCubic * x * x * x));
  }
  DPT_HOST_DEVICE float value(float x) const { return 0.5F * x * (1.0F + inner(x)); }
  DPT_HOST_DEVICE float gradient(float x, float dy) const {
    const float t = inner(x);
    const float slope = kSqrt2OverPi * (1.0F + 3.0F * kCubic * x * x);
    return dy * (0.5F * (1.0F + t) + 0.5F * x * (1.0F - t * t) * slope);
  }
};

struct Silu {
  static constexpr bool kOfY = false;
  DPT_HOST_DEVICE float value(float x) const { return x * sigmoid(x); }
  DPT_HOST_DEVICE float gradient(float x, float dy) const {
    const float s = sigmoid(x);
    return dy * (s * (1.0F + x * (1.0F - s)));
  }
};

struct Sigmoid {
  static constexpr bool kOfY = true;
  DPT_HOST_DEVICE float value(float x) const { return sigmoid(x); }
  DPT_HOST_DEVICE float gradient(float y, float dy) const { return dy * (1.0F - y) * y; }
};

struct Tanh {
  static constexpr bool kOfY = true;
  DPT_HOST_DEVICE float value(float x) const { return tanhf(x); }
  DPT_HOST_DEVICE float gradient(float y, float dy) const { return dy * (1.0F - y * y); }
};

/// log(1 + e^(beta x)) / beta, or x if beta x is above the threshold.
struct Softplus {
  static constexpr bool kOfY = false;
  float beta, threshold;
  DPT_HOST_DEVICE float value(float x) const {
    const float z = x * beta;
    if (z > threshold) return x;
    // Compute log(1 + e^z) without overflow, whatever the threshold.
    const float above = z < 0.0F ? 0.0F : z;
    return (above + log1pf(exp_nonpositive(z < 0.0F ? z : -z))) / beta;
  }
  DPT_HOST_DEVICE float gradient(float x, float dy) const {
    const float z = x * beta;
    return z > threshold ? dy : dy * sigmoid(z);
  }
};

/// x relu6(x + 3) / 6.
struct Hardswish {
  static constexpr bool kOfY = false;
  DPT_HOST_DEVICE float value(float x) const {
    return x <= -3.0F ? 0.0F : x >= 3.0F ? x : x * (x + 3.0F) / 6.0F;
  }
  DPT_HOST_DEVICE float gradient(float x, float dy) const {
    return x <= -3.0F ? 0.0F : x >= 3.0F ? dy : dy * (x / 3.0F + 0.5F);
  }
};

/// relu6(x + 3) / 6. Backward uses x, because y is rounded to 1 for some x below 3.
struct Hardsigmoid {
  static constexpr bool kOfY = false;
  DPT_HOST_DEVICE float value(float x) const {
    return x <= -3.0F ? 0.0F : x >= 3.0F ? 1.0F : (x + 3.0F) / 6.0F;
  }
  DPT_HOST_DEVICE float gradient(float x, float dy) const {
    return x <= -3.0F || x >= 3.0F ? 0.0F : dy / 6.0F;
  }
};

/// List of the formulas. Every backend compiles each of them.
using Formula = std::variant<LeakyRelu<true>, LeakyRelu<false>, Relu6, Gelu, GeluTanh, Silu,
                             Sigmoid, Tanh, Softplus, Hardswish, Hardsigmoid>;

}  // namespace dpt::activations
