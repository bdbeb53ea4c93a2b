// RAdam as torch.optim.RAdam: Adam that rectifies the variance of its adaptive learning rate (Liu
// et al., 2020).
#pragma once

#include "kernels/common/optimizers/adam_averages.h"

namespace dpt {

/// States: the running averages of the gradient and of its square.
struct RAdamFormula {
  static constexpr int kStates = 2;

  struct Step : AdamAverages {
    /// lr / (1 - beta1^t). For an adaptive update, this is multiplied by the rectification and by
    /// sqrt(1 - beta2^t).
    float step_size = 0;
    /// True if the variance of the adaptive learning rate is tractable. It is not in the first
    /// updates.
    bool is_adaptive = false;
  };

  template <class T>
  DPT_HOST_DEVICE static void update(const Step& step, T& param, T grad, T* state) {
    update_averages(step, param, grad, state);
    const T direction = step.is_adaptive ? state[0] / (square_root(state[1]) + step.eps) : state[0];
    param = param - direction * step.step_size;
  }
};

}  // namespace dpt
