// LARS (You et al., "Large Batch Training of Convolutional Networks", 2017, algorithm 1): SGD with
// momentum and with a learning rate that adapts to each parameter.
#pragma once

#include "kernels/common/optimizers/formula.h"

namespace dpt {

/// State: the momentum buffer, which includes the learning rate, as in the paper.
struct LarsFormula {
  static constexpr int kStates = 1;
  static constexpr bool kPreparesStates = false;

  struct Step {
    float lr = 0;
    float weight_decay = 0;
    float momentum = 0;
    double trust_coefficient = 0, eps = 0;
    bool adapts = true;
  };

  template <class T>
  DPT_HOST_DEVICE static void prepare(const Step&, T param, T grad, T*, T& a, T& b) {
    a = param;
    b = grad;
  }
  DPT_HOST_DEVICE static float ratio(const Step& step, double a_squares, double b_squares) {
    const double param = sqrt(a_squares), grad = sqrt(b_squares);
    if (!step.adapts || param == 0 || grad == 0) return 1;
    const double decay = static_cast<double>(step.weight_decay);
    return static_cast<float>(step.trust_coefficient * param / (grad + decay * param + step.eps));
  }
  template <class T>
  DPT_HOST_DEVICE static void update(const Step& step, float ratio, T& param, T grad, T* state) {
    grad = grad + param * step.weight_decay;
    state[0] = state[0] * step.momentum + grad * (step.lr * ratio);
    param = param - state[0];
  }
};

}  // namespace dpt
