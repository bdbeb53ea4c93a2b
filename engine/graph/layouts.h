#pragma once

#include "engine/graph/plan.h"

namespace dpt {

/// These convert one parameter from buffer layout to file layout, or back. Both ranges have `count`
/// floats and must not overlap.
void to_file_layout(const Param& param, const float* buffer, float* file);
void from_file_layout(const Param& param, const float* file, float* buffer);

}  // namespace dpt
