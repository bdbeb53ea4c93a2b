#pragma once

#include <cstdint>

#include "engine/graph/plan.h"

namespace dpt {

/// Writes the initial values of all parameters, in buffer layout. The values of a parameter depend
/// only on `seed`, its name and its initialisation.
void initialise_params(const Plan& plan, std::uint64_t seed, float* flat);

}  // namespace dpt
