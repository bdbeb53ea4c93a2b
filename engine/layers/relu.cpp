#include "engine/layers/relu.h"

#include "engine/layers/kind.h"
#include "engine/layers/op_writer.h"

namespace dpt {

const ObjectTable& ReLU::table() {
  static const ObjectTable table =
      activation_table(object_table<ReluOptions>("ReLU", "Rectified linear unit, max(x, 0).", {}));
  return table;
}

std::unique_ptr<Op> ReLU::compile(Backend& backend, const LayerContext& context) const {
  ReluDesc desc;
  desc.batch = context.batch;
  desc.shape = context.out.shape;
  desc.type = context.type;
  desc.training = context.training;
  return backend.make(desc);
}

std::string ReLU::write_ops(OpWriter& writer, const OpContext& context) const {
  return writer.op("Relu", {context.in[0]});
}

template LayerKind kind_of<ReLU>();

}  // namespace dpt
