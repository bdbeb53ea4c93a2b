// RMSprop as torch.optim.RMSprop: eps is added after the square root.
#pragma once

#include "kernels/common/optimizers/formula.h"

namespace dpt {

/// States: the running average of the squared gradient; with momentum, also the momentum buffer; if
/// centered, also the running average of the gradient.
template <bool kMomentum, bool kCentered>
struct RmspropFormula {
  static constexpr int kStates = 1 + (kMomentum ? 1 : 0) + (kCentered ? 1 : 0);

  struct Step {
    float lr = 0;
    float weight_decay = 0;
    float alpha = 0, one_minus_alpha = 0, eps = 0;
    float momentum = 0;
  };

  template <class T>
  DPT_HOST_DEVICE static void update(const Step& step, T& param, T grad, T* state) {
    T& square = state[0];
    grad = grad + param * step.weight_decay;
    square = square * step.alpha + grad * grad * step.one_minus_alpha;
    T variance = square;
    if constexpr (kCentered) {
      T& mean = state[kMomentum ? 2 : 1];
      mean = mean + (grad - mean) * step.one_minus_alpha;
      // Rounding can make the variance negative if the gradient hardly varies. In PyTorch, the
      // weight would then become NaN.
      variance = larger(square - mean * mean, square * 0.0F);
    }
    const T denominator = square_root(variance) + step.eps;
    if constexpr (kMomentum) {
      T& buffer = state[1];
      buffer = buffer * step.momentum + grad / denominator;
      param = param - buffer * step.lr;
    } else {
      param = param - grad / denominator * step.lr;
    }
  }
};

}  // namespace dpt
