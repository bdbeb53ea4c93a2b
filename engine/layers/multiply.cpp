// Multiply: the elementwise product of two layers' outputs. One may have 1x1 pixels, like the gates
// of squeeze-and-excitation blocks.
#include "engine/layers/activation_shape.h"
#include "engine/layers/kinds.h"
#include "engine/layers/op_writer.h"

namespace dpt {

struct MultiplyOptions {};

class Multiply final : public Layer {
 public:
  using Options = MultiplyOptions;

  explicit Multiply(const Options&) {}

  InputCount input_count() const override { return {2, 2}; }

  ActivationShape infer(std::span<const ActivationShape> in) const override {
    const ActivationShape &a = in[0], &b = in[1];
    if (a.flat == b.flat && a.shape == b.shape) return a;
    if (!a.flat && !b.flat && a.shape.c == b.shape.c) {
      if (is_narrow(b)) return a;
      if (is_narrow(a)) return b;
    }
    if (a.flat && b.flat && a.elements() == b.elements()) {
      fail(ErrorKind::usage,
           "expected inputs of the same shape, found vectors of {} features in different orders: "
           "one in the order of an image's pixels, the other not; multiply the images before the "
           "Flatten, or put a Linear after it",
           a.text());
    }
    fail(ErrorKind::usage,
         "expected two inputs of the same shape, or images (C x H x W) with the same number of "
         "channels, one of them with 1x1 pixels, found {}{} and {}{}",
         a.flat ? "a vector of " : "", a.text(), b.flat ? "a vector of " : "", b.text());
  }

  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    return writer.op("Mul", {context.in[0], context.in[1]});
  }

  OpDesc describe(const LayerContext& context) const override {
    ProductDesc desc;
    desc.batch = context.batch;
    desc.in = {context.in[0].shape, context.in[1].shape};
    desc.out = context.out.shape;
    desc.type = context.type;
    return desc;
  }

 private:
  static bool is_narrow(const ActivationShape& in) { return in.shape.h == 1 && in.shape.w == 1; }
};

LayerKind multiply_layer() {
  static const ObjectTable table = joining_table(object_table<MultiplyOptions>(
      "Multiply",
      "Elementwise product of the outputs of two layers, which `from` names. If one has 1x1 "
      "pixels, each of its channels multiplies all pixels of the other's channel.",
      {}));
  return layer_kind<Multiply>(table);
}

}  // namespace dpt
