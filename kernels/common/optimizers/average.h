// A running average of the weights: no optimizer, but a pass over the same flat buffers. What a
// formula calls the parameter is the average here, and the gradient the weights after their update.
#pragma once

#include "kernels/common/optimizers/formula.h"

namespace dpt {

struct AverageFormula {
  static constexpr int kStates = 0;

  struct Step {
    float part = 0;  ///< weight of the present weights in the new average
  };

  template <class T>
  DPT_HOST_DEVICE static void update(const Step& step, T& average, T weight, T*) {
    average = average + (weight - average) * step.part;
  }
};

}  // namespace dpt
