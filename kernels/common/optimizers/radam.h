// RAdam as torch.optim.RAdam: Adam that rectifies the variance of its adaptive learning rate (Liu
// et al., 2020).
#pragma once

#include "kernels/common/optimizers/formula.h"

namespace dpt {

/// States: the running averages of the gradient and of its square.
struct RAdamFormula {
  static constexpr int kStates = 2;

  struct Step {
    float shrink = 1;        ///< decoupled weight decay: 1 - lr * weight_decay
    float weight_decay = 0;  ///< otherwise: added to the gradient
    float one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0, eps = 0;
    /// lr / (1 - beta1^t), and if the update is adaptive times the rectification and
    /// sqrt(1 - beta2^t).
    float step_size = 0;
    /// Whether the variance of the adaptive learning rate is tractable: not in the first updates.
    bool is_adaptive = false;
  };

  template <class T>
  DPT_HOST_DEVICE static void update(const Step& step, T& param, T grad, T* state) {
    T& mean = state[0];
    T& square = state[1];
    param = param * step.shrink;
    grad = grad + param * step.weight_decay;
    mean = mean + (grad - mean) * step.one_minus_beta1;
    square = square * step.beta2 + grad * grad * step.one_minus_beta2;
    const T direction = step.is_adaptive ? mean / (square_root(square) + step.eps) : mean;
    param = param - direction * step.step_size;
  }
};

}  // namespace dpt
