// One function per kind of loss, and the list of them.
#pragma once

#include "engine/losses/loss.h"

namespace dpt {

LossKind cross_entropy_loss();
LossKind bce_with_logits_loss();
LossKind mse_loss();
LossKind l1_loss();
LossKind smooth_l1_loss();

/// Returns all losses, in the order of docs/reference/config.md.
inline std::vector<LossKind> all_losses() {
  return {cross_entropy_loss(), bce_with_logits_loss(), mse_loss(), l1_loss(), smooth_l1_loss()};
}

}  // namespace dpt
