// Add: the sum of two or more layers' outputs, elementwise, optionally with ReLU fused.
#include "engine/layers/activation_shape.h"
#include "engine/layers/kinds.h"
#include "engine/layers/op_writer.h"
#include "engine/layers/relu.h"

namespace dpt {

struct AddOptions {};

class Add final : public Layer {
 public:
  using Options = AddOptions;

  explicit Add(const Options&, bool relu = false) : relu_(relu) {}

  InputCount input_count() const override { return {2, kMaxInputs}; }
  bool is_in_place() const override { return true; }

  ActivationShape infer(std::span<const ActivationShape> in) const override {
    for (std::size_t k = 1; k < in.size(); ++k) {
      const ActivationShape& other = in[k];
      if (other.flat == in[0].flat && other.shape == in[0].shape) continue;
      if (in[0].text() == other.text()) {
        fail(ErrorKind::usage,
             "expected inputs of the same shape, found vectors of {} features in different orders: "
             "one in the order of an image's pixels, the other not; add the images before the "
             "Flatten, or put a Linear after it",
             other.text());
      }
      const bool are_vectors = in[0].flat && other.flat;
      fail(ErrorKind::usage,
           "expected inputs of the same shape, found {} as input 1 and {} as input {}{}",
           in[0].text(), other.text(), k + 1,
           are_vectors ? "; a Linear gives a vector of another size"
                       : " (C x H x W); a convolution with kernel_size 1 can change the number of "
                         "channels, its stride the size");
    }
    return in[0];
  }

  std::unique_ptr<Layer> fuse(const Layer& next) const override {
    if (relu_ || !dynamic_cast<const ReLU*>(&next)) return nullptr;
    return std::make_unique<Add>(Options(), true);
  }

  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    std::string sum = context.in[0];
    for (const std::string& each : context.in.subspan(1)) sum = writer.op("Add", {sum, each});
    return sum;
  }

  OpDesc describe(const LayerContext& context) const override {
    SumDesc desc;
    desc.batch = context.batch;
    desc.shape = context.out.shape;
    desc.inputs = static_cast<int>(context.in.size());
    desc.relu = relu_;
    desc.type = context.type;
    desc.training = context.training;
    return desc;
  }

 private:
  bool relu_ = false;
};

LayerKind add_layer() {
  static const ObjectTable table = joining_table(object_table<AddOptions>(
      "Add", "Elementwise sum of the outputs of two to eight layers, which `from` names.", {}));
  return layer_kind<Add>(table);
}

}  // namespace dpt
