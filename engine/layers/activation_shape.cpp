#include "engine/layers/activation_shape.h"

#include <fmt/format.h>

namespace dpt {

std::string ActivationShape::text() const {
  if (flat) return fmt::format("{}", elements());
  return fmt::format("{}x{}x{}", shape.c, shape.h, shape.w);
}

}  // namespace dpt
