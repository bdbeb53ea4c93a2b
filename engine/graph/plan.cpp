#include "engine/graph/plan.h"
#include "engine/layers/activation_shape.h"

namespace dpt {

std::vector<const Param*> Plan::updated() const {
  std::vector<const Param*> all;
  for (const Param& param : params) {
    if (param.is_trained() && !param.is_frozen) all.push_back(&param);
  }
  return all;
}

std::vector<ActivationShape> Plan::shapes_into(const Node& node) const {
  std::vector<ActivationShape> shapes;
  for (const int each : node.inputs) {
    shapes.push_back(values[each].shape);
  }
  return shapes;
}

}  // namespace dpt
