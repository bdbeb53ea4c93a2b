// Plans of the zoo's networks without a config, for checks of kernels.
#pragma once

#include <cstdint>
#include <string>

#include "engine/graph/plan.h"

namespace dpt {

/// A network of the zoo and its input, as a config has them: "lenet", "[1, 28, 28]".
struct ZooInput {
  const char* name;
  const char* input;
};

/// Returns the plan of a network with 10 classes for training in a precision.
Plan zoo_plan(const ZooInput& network, std::int64_t batch, const std::string& precision);

}  // namespace dpt
