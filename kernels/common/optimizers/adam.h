// Adam and AdamW as torch.optim.Adam and AdamW. They differ in how weight decay is applied.
#pragma once

#include "kernels/common/optimizers/adam_averages.h"

namespace dpt {

/// States: the running averages of the gradient and of its square. With amsgrad, also the maximum
/// of the average of the square.
template <bool kAmsgrad>
struct AdamFormula {
  static constexpr int kStates = kAmsgrad ? 3 : 2;

  struct Step : AdamAverages {
    float step_size = 0;           ///< lr / (1 - beta1^t)
    float inverse_sqrt_bias2 = 1;  ///< 1 / sqrt(1 - beta2^t)
  };

  template <class T>
  DPT_HOST_DEVICE static void update(const Step& step, T& param, T grad, T* state) {
    update_averages(step, param, grad, state);
    T second = state[1];
    if constexpr (kAmsgrad) second = state[2] = larger(state[2], second);
    const T denominator = square_root(second) * step.inverse_sqrt_bias2 + step.eps;
    param = param - state[0] / denominator * step.step_size;
  }
};

}  // namespace dpt
