// Normalize: checks of its use in training and evaluation.
#pragma once

#include <string>

#include "engine/config/train_spec.h"

namespace dpt {

/// Returns a sentence if training and evaluation normalise differently, so that an evaluation shows
/// the network values other than those it was trained on; empty otherwise.
std::string different_normalisation(const TransformsSpec& transforms);

/// Returns a message for a mean of Normalize above 1 or below -1, which samples from 0 to 1 cannot
/// have; otherwise empty.
std::string large_mean(const DataSpec& data);

}  // namespace dpt
