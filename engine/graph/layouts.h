#pragma once

#include "engine/graph/plan.h"

namespace dpt {

/// Buffer layout <-> file layout of one parameter (`count` floats each; may not overlap).
void to_file_layout(const Param& param, const float* buffer, float* file);
void from_file_layout(const Param& param, const float* file, float* buffer);

}  // namespace dpt
