// Places of a Plan's parameters in the flat buffers.
#pragma once

#include <cstdint>

#include "engine/graph/plan.h"

namespace dpt {

/// Gives every parameter its place: first come trained parameters, then running statistics, then
/// their counters, each in the order of the nodes. Sets the members of Plan that describe these
/// ranges.
void place_params(Plan& plan);

/// Returns the number of floats at the beginning of the flat buffer that have no gradient and no
/// optimizer state. They belong to the frozen layers before the first trained layer, which backward
/// does not reach.
std::int64_t gradient_begin(const Plan& plan);

}  // namespace dpt
