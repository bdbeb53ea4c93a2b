#pragma once

#include <functional>

namespace dpt {

/// Function that returns a variable of the environment, or null.
using Environment = std::function<const char*(const char* name)>;

}  // namespace dpt
