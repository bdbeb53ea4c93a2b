// Adagrad as torch.optim.Adagrad.
#pragma once

#include "kernels/common/optimizers/formula.h"

namespace dpt {

/// State: the sum of the squared gradients.
struct AdagradFormula {
  static constexpr int kStates = 1;

  struct Step {
    float lr = 0;  ///< learning rate / (1 + (t - 1) * lr_decay)
    float weight_decay = 0;
    float eps = 0;
  };

  template <class T>
  DPT_HOST_DEVICE static void update(const Step& step, T& param, T grad, T* state) {
    grad = grad + param * step.weight_decay;
    state[0] = state[0] + grad * grad;
    param = param - grad / (square_root(state[0]) + step.eps) * step.lr;
  }
};

}  // namespace dpt
