#include "engine/graph/operations.h"

#include <vector>

#include "engine/graph/name_stream.h"

namespace dpt {

OpDesc operation_of(const Plan& plan, const Node& node, const PassKind& pass) {
  const std::vector<ActivationShape> in = plan.shapes_into(node);
  LayerContext context;
  context.batch = pass.batch;
  context.in = in;
  context.out = plan.values[static_cast<std::size_t>(node.output)].shape;
  context.type = plan.type;
  context.training = pass.training;
  context.is_frozen = node.is_frozen;
  context.input_gradient = pass.training && node.input_gradient;
  context.tf32 = plan.tf32;
  context.seed = pass.seed;
  context.stream = stream_of(node.name);
  return node.layer->describe(context);
}

}  // namespace dpt
