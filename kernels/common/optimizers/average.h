// A running average of the weights. It is not an optimizer, but a pass over the same flat buffers.
// The formula's parameter is the average, and its gradient is the updated weights.
#pragma once

#include "kernels/common/optimizers/formula.h"

namespace dpt {

struct AverageFormula {
  static constexpr int kStates = 0;

  struct Step {
    float part = 0;  ///< weight of the current weights in the new average
  };

  template <class T>
  DPT_HOST_DEVICE static void update(const Step& step, T& average, T weight, T*) {
    average = average + (weight - average) * step.part;
  }
};

}  // namespace dpt
