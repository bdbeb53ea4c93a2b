// Adam and AdamW as torch.optim.Adam and AdamW, which differ in how weight decay is applied.
#pragma once

#include "kernels/common/optimizers/formula.h"

namespace dpt {

/// States: the running averages of the gradient and of its square; with amsgrad the largest of the
/// latter so far.
template <bool kAmsgrad>
struct AdamFormula {
  static constexpr int kStates = kAmsgrad ? 3 : 2;

  struct Step {
    float shrink = 1;        ///< AdamW: 1 - lr * weight_decay
    float weight_decay = 0;  ///< Adam: added to the gradient
    float one_minus_beta1 = 0, beta2 = 0, one_minus_beta2 = 0, eps = 0;
    float step_size = 0;           ///< lr / (1 - beta1^t)
    float inverse_sqrt_bias2 = 1;  ///< 1 / sqrt(1 - beta2^t)
  };

  template <class T>
  DPT_HOST_DEVICE static void update(const Step& step, T& param, T grad, T* state) {
    T& mean = state[0];
    T& square = state[1];
    param = param * step.shrink;
    grad = grad + param * step.weight_decay;
    mean = mean + (grad - mean) * step.one_minus_beta1;
    square = square * step.beta2 + grad * grad * step.one_minus_beta2;
    T second = square;
    if constexpr (kAmsgrad) second = state[2] = larger(state[2], square);
    const T denominator = square_root(second) * step.inverse_sqrt_bias2 + step.eps;
    param = param - mean / denominator * step.step_size;
  }
};

}  // namespace dpt
