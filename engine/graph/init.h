#pragma once

#include <cstdint>

#include "engine/graph/plan.h"

namespace dpt {

/// Writes the initial values of all parameters, in buffer layout, keyed by (seed, name).
void initialise_params(const Plan& plan, std::uint64_t seed, float* flat);

}  // namespace dpt
