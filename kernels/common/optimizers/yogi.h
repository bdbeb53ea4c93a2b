// Yogi (Zaheer et al., "Adaptive Methods for Nonconvex Optimization", NeurIPS 2018, algorithm 2),
// with Adam's bias corrections, which the paper omits for simplicity.
#pragma once

#include "kernels/common/optimizers/formula.h"

namespace dpt {

/// States: the running average of the gradient, and the second moment, which changes by an amount
/// that does not depend on its size.
struct YogiFormula {
  static constexpr int kStates = 2;

  struct Step {
    float weight_decay = 0;
    float one_minus_beta1 = 0, one_minus_beta2 = 0, eps = 0;
    float step_size = 0;           ///< lr / (1 - beta1^t)
    float inverse_sqrt_bias2 = 1;  ///< 1 / sqrt(1 - beta2^t)
  };

  template <class T>
  DPT_HOST_DEVICE static void update(const Step& step, T& param, T grad, T* state) {
    T& mean = state[0];
    T& second = state[1];
    grad = grad + param * step.weight_decay;
    mean = mean + (grad - mean) * step.one_minus_beta1;
    const T square = grad * grad;
    second = second - sign_of(second - square) * square * step.one_minus_beta2;
    const T denominator = square_root(second) * step.inverse_sqrt_bias2 + step.eps;
    param = param - mean / denominator * step.step_size;
  }
};

}  // namespace dpt
