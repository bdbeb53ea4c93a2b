// NAdam as torch.optim.NAdam: Adam with Nesterov momentum (Dozat, 2016).
#pragma once

#include "kernels/common/optimizers/adam_averages.h"

namespace dpt {

/// States: the running averages of the gradient and of its square.
struct NAdamFormula {
  static constexpr int kStates = 2;

  struct Step : AdamAverages {
    float inverse_sqrt_bias2 = 1;  ///< 1 / sqrt(1 - beta2^t)
    float gradient_rate = 0;       ///< lr * (1 - mu_t) / (1 - mu_1 ... mu_t)
    float mean_rate = 0;           ///< lr * mu_(t+1) / (1 - mu_1 ... mu_(t+1))
  };

  template <class T>
  DPT_HOST_DEVICE static void update(const Step& step, T& param, T grad, T* state) {
    update_averages(step, param, grad, state);
    const T denominator = square_root(state[1]) * step.inverse_sqrt_bias2 + step.eps;
    param = param - grad / denominator * step.gradient_rate;
    param = param - state[0] / denominator * step.mean_rate;
  }
};

}  // namespace dpt
