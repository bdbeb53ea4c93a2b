// Code that Adam and the optimizers derived from it share: weight decay, and the running averages
// of the gradient and of its square.
#pragma once

#include "kernels/common/optimizers/formula.h"

namespace dpt {

/// Base of the Step of Adam and the optimizers derived from it.
struct AdamAverages {
  float shrink = 1;        ///< decoupled weight decay: 1 - lr * weight_decay
  float weight_decay = 0;  ///< L2 weight decay, added to the gradient
  float one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0, eps = 0;
};

/// Applies weight decay to the parameter or to the gradient, and updates the averages state[0] and
/// state[1].
template <class T>
DPT_HOST_DEVICE inline void update_averages(const AdamAverages& step, T& param, T& grad, T* state) {
  param = param * step.shrink;
  grad = grad + param * step.weight_decay;
  state[0] = state[0] + (grad - state[0]) * step.one_minus_beta1;
  state[1] = state[1] * step.beta2 + grad * grad * step.one_minus_beta2;
}

}  // namespace dpt
