// The charts of a learning-rate curve: the rate from 0 to its highest value, over the epochs.
#pragma once

#include <string>

#include "app/config/lr_curve.h"
#include "kernels/image/image.h"

namespace dpt {

/// A chart of plain characters.
std::string text_chart(const LrCurve& curve);
/// The same as a picture.
Image picture_chart(const LrCurve& curve);

}  // namespace dpt
