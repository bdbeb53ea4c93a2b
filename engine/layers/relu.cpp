#include "engine/layers/relu.h"

#include "engine/layers/kinds.h"
#include "engine/layers/op_writer.h"

namespace dpt {

LayerKind relu_layer() {
  static const ObjectTable table =
      activation_table(object_table<ReluOptions>("ReLU", "Rectified linear unit, max(x, 0).", {}));
  return layer_kind<ReLU>(table);
}

OpDesc ReLU::describe(const LayerContext& context) const {
  ReluDesc desc;
  desc.batch = context.batch;
  desc.shape = context.out.shape;
  desc.type = context.type;
  desc.training = context.training;
  return desc;
}

std::string ReLU::write_ops(OpWriter& writer, const OpContext& context) const {
  return writer.op("Relu", {context.in[0]});
}

}  // namespace dpt
