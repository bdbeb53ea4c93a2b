// NAdam as torch.optim.NAdam: Adam with Nesterov momentum (Dozat, 2016).
#pragma once

#include "kernels/common/optimizers/formula.h"

namespace dpt {

/// States: the running averages of the gradient and of its square.
struct NAdamFormula {
  static constexpr int kStates = 2;

  struct Step {
    float shrink = 1;        ///< decoupled weight decay: 1 - lr * weight_decay
    float weight_decay = 0;  ///< otherwise: added to the gradient
    float one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0, eps = 0;
    float inverse_sqrt_bias2 = 1;  ///< 1 / sqrt(1 - beta2^t)
    float gradient_rate = 0;       ///< lr * (1 - mu_t) / (1 - mu_1 ... mu_t)
    float mean_rate = 0;           ///< lr * mu_(t+1) / (1 - mu_1 ... mu_(t+1))
  };

  template <class T>
  DPT_HOST_DEVICE static void update(const Step& step, T& param, T grad, T* state) {
    T& mean = state[0];
    T& square = state[1];
    param = param * step.shrink;
    grad = grad + param * step.weight_decay;
    mean = mean + (grad - mean) * step.one_minus_beta1;
    square = square * step.beta2 + grad * grad * step.one_minus_beta2;
    const T denominator = square_root(square) * step.inverse_sqrt_bias2 + step.eps;
    param = param - grad / denominator * step.gradient_rate;
    param = param - mean / denominator * step.mean_rate;
  }
};

}  // namespace dpt
