// SGD as torch.optim.SGD: momentum, dampening, Nesterov momentum, weight decay as an L2 term.
#pragma once

#include "kernels/common/optimizers/formula.h"

namespace dpt {

/// State: the momentum buffer, if there is momentum.
template <bool kMomentum>
struct SgdFormula {
  static constexpr int kStates = kMomentum ? 1 : 0;

  struct Step {
    float lr = 0;
    float weight_decay = 0;
    float momentum = 0;
    float keep = 0;  ///< factor of the old momentum buffer: momentum
    float gain = 1;  ///< factor of the gradient in the new buffer: 1 - dampening
    bool nesterov = false;
    /// True in the first step, which sets the buffer to the gradient.
    bool is_first = false;
  };

  template <class T>
  DPT_HOST_DEVICE static void update(const Step& step, T& param, T grad,
                                     [[maybe_unused]] T* state) {
    grad = grad + param * step.weight_decay;
    if constexpr (kMomentum) {
      state[0] = step.is_first ? grad : state[0] * step.keep + grad * step.gain;
      const T direction = step.nesterov ? grad + state[0] * step.momentum : state[0];
      param = param - direction * step.lr;
    } else {
      param = param - grad * step.lr;
    }
  }
};

}  // namespace dpt
