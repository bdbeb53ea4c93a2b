// A chart of a learning-rate curve over the epochs, from 0 to the highest rate.
#pragma once

#include <string>

#include "app/config/lr_curve.h"

namespace dpt {

/// Returns the chart in plain characters.
std::string text_chart(const LrCurve& curve);

}  // namespace dpt
