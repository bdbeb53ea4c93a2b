// Where the parameters of a Plan lie in the flat buffers.
#pragma once

#include "engine/graph/plan.h"

namespace dpt {

/// Gives every parameter its place: first what is trained, then running statistics, then their
/// counters, each in the order of the nodes. Fills in what the Plan says of these stretches.
void place_params(Plan& plan);

}  // namespace dpt
