// Adadelta as torch.optim.Adadelta.
#pragma once

#include "kernels/common/optimizers/formula.h"

namespace dpt {

/// States: the running averages of the squared gradient and of the squared update.
struct AdadeltaFormula {
  static constexpr int kStates = 2;

  struct Step {
    float lr = 0;
    float weight_decay = 0;
    float rho = 0, one_minus_rho = 0, eps = 0;
  };

  template <class T>
  DPT_HOST_DEVICE static void update(const Step& step, T& param, T grad, T* state) {
    T& square = state[0];
    T& accumulated = state[1];
    grad = grad + param * step.weight_decay;
    square = square * step.rho + grad * grad * step.one_minus_rho;
    const T delta = square_root(accumulated + step.eps) / square_root(square + step.eps) * grad;
    accumulated = accumulated * step.rho + delta * delta * step.one_minus_rho;
    param = param - delta * step.lr;
  }
};

}  // namespace dpt
