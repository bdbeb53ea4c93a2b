// LAMB (You et al., "Large Batch Optimization for Deep Learning: Training BERT in 76 minutes", ICLR
// 2020, algorithm 2): AdamW, with the update of each parameter scaled to the parameter's norm.
#pragma once

#include "kernels/common/optimizers/formula.h"

namespace dpt {

/// States: the running averages of the gradient and of its square.
struct LambFormula {
  static constexpr int kStates = 2;
  static constexpr bool kPreparesStates = true;

  struct Step {
    float lr = 0;
    float weight_decay = 0;
    float one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0, eps = 0;
    float inverse_bias1 = 1;       ///< 1 / (1 - beta1^t)
    float inverse_sqrt_bias2 = 1;  ///< 1 / sqrt(1 - beta2^t)
    bool adapts = true;
  };

  template <class T>
  DPT_HOST_DEVICE static T direction(const Step& step, T param, const T* state) {
    const T denominator = square_root(state[1]) * step.inverse_sqrt_bias2 + step.eps;
    return state[0] * step.inverse_bias1 / denominator + param * step.weight_decay;
  }

  template <class T>
  DPT_HOST_DEVICE static void prepare(const Step& step, T param, T grad, T* state, T& a, T& b) {
    state[0] = state[0] + (grad - state[0]) * step.one_minus_beta1;
    state[1] = state[1] * step.beta2 + grad * grad * step.one_minus_beta2;
    a = param;
    b = direction(step, param, state);
  }
  DPT_HOST_DEVICE static float ratio(const Step& step, double a_squares, double b_squares) {
    if (!step.adapts || a_squares == 0 || b_squares == 0) return 1;
    return static_cast<float>(sqrt(a_squares) / sqrt(b_squares));
  }
  template <class T>
  DPT_HOST_DEVICE static void update(const Step& step, float ratio, T& param, T, T* state) {
    param = param - direction(step, param, state) * (step.lr * ratio);
  }
};

}  // namespace dpt
