// Checks of how training and evaluation use Normalize.
#pragma once

#include <string>

#include "engine/config/train_spec.h"

namespace dpt {

/// Returns a message if training and evaluation normalise differently, so that evaluation inputs
/// differ from those that the network was trained on; otherwise empty.
std::string different_normalisation(const TransformsSpec& transforms);

/// Returns a message for a mean of Normalize above 1 or below -1, which samples from 0 to 1 cannot
/// have; otherwise empty.
std::string large_mean(const DataSpec& data);

}  // namespace dpt
