#pragma once

#include "engine/graph/plan.h"

namespace dpt {

/// Converts one parameter from buffer layout to file layout, or back (`count` floats each, in
/// ranges that do not overlap).
void to_file_layout(const Param& param, const float* buffer, float* file);
void from_file_layout(const Param& param, const float* file, float* buffer);

}  // namespace dpt
