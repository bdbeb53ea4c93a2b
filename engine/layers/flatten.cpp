// Flatten: turns an image into a vector. It needs no kernel: the memory stays as it is, in (H,W,C)
// order, and the Linear after it keeps its weight columns in that order.
#include "engine/layers/activation_shape.h"
#include "engine/layers/kinds.h"
#include "engine/layers/op_writer.h"

namespace dpt {

struct FlattenOptions {};

class Flatten final : public Layer {
 public:
  using Options = FlattenOptions;

  explicit Flatten(const Options&) {}
  ActivationShape infer(std::span<const ActivationShape> in) const override {
    return {in[0].shape, true};
  }
  bool is_view() const override { return true; }
  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    return writer.op("Flatten", {context.in[0]}, {{"axis", std::int64_t{1}}});
  }
  OpDesc describe(const LayerContext&) const override { return {}; }
};

LayerKind flatten_layer() {
  static const ObjectTable table = object_table<FlattenOptions>(
      "Flatten", "Flattens an image to a vector, like torch.nn.Flatten with its defaults.", {});
  return layer_kind<Flatten>(table);
}

}  // namespace dpt
