// Mixing of one batch: the draws of a batch transform, in the form that the input kernel and the
// targets need.
#pragma once

#include "kernels/input_op.h"

namespace dpt {

/// Mixing of a batch: each sample is mixed with the one before it in the batch, and the first with
/// the last.
struct BatchMix {
  InputMix input;
  float own = 1, partner = 0;  ///< weights of the sample's own target and of its partner's
};

}  // namespace dpt
