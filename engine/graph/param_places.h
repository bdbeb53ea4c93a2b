// Places of a Plan's parameters in the flat buffers.
#pragma once

#include <cstdint>

#include "engine/graph/plan.h"

namespace dpt {

/// Gives every parameter its place: first what is trained, then running statistics, then their
/// counters, each in the order of the nodes. Fills in what the Plan says of these stretches.
void place_params(Plan& plan);

/// Returns the number of floats at the beginning of the flat buffer without gradient and optimizer
/// state: frozen layers before the first trained layer, which backward does not reach.
std::int64_t gradient_begin(const Plan& plan);

}  // namespace dpt
