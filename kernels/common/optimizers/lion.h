// Lion (Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023, algorithm 2).
#pragma once

#include "kernels/common/optimizers/formula.h"

namespace dpt {

/// State: the running average of the gradient.
struct LionFormula {
  static constexpr int kStates = 1;

  struct Step {
    float lr = 0;
    float shrink = 1;  ///< 1 - lr * weight_decay
    float one_minus_beta1 = 0, one_minus_beta2 = 0;
  };

  template <class T>
  DPT_HOST_DEVICE static void update(const Step& step, T& param, T grad, T* state) {
    T& mean = state[0];
    const T mixed = mean + (grad - mean) * step.one_minus_beta1;
    param = param * step.shrink - sign_of(mixed) * step.lr;
    mean = mean + (grad - mean) * step.one_minus_beta2;
  }
};

}  // namespace dpt
