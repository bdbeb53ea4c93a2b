// The chart of a learning-rate curve: the rate from 0 to its highest value, over the epochs.
#pragma once

#include <string>

#include "app/config/lr_curve.h"

namespace dpt {

/// A chart of plain characters.
std::string text_chart(const LrCurve& curve);

}  // namespace dpt
