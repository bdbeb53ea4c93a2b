// Concat: concatenates the channels of several layers' outputs, like torch.cat along dimension 1.
#include <algorithm>

#include "engine/layers/activation_shape.h"
#include "engine/layers/kinds.h"
#include "engine/layers/op_writer.h"

namespace dpt {

struct ConcatOptions {};

class Concat final : public Layer {
 public:
  using Options = ConcatOptions;

  explicit Concat(const Options&) {}

  InputCount input_count() const override { return {2, kMaxInputs}; }

  /// Concatenates the channels of images. Does the same for vectors that are flattened images of
  /// one size. For other vectors, concatenates the features in the order in which weight files
  /// store them.
  ActivationShape infer(std::span<const ActivationShape> in) const override {
    ActivationShape out = in[0];
    for (std::size_t k = 1; k < in.size(); ++k) {
      if (in[k].flat != out.flat || (!out.flat && !is_size_of(in[0], in[k]))) {
        refuse(in[0], in[k], k + 1);
      }
      out.shape.c += in[k].shape.c;
    }
    if (flattens(in)) {
      out.shape = {1, 1, 0};
      for (const ActivationShape& each : in) out.shape.c += each.elements();
    }
    return out;
  }

  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    return writer.op("Concat", {context.in.begin(), context.in.end()}, {{"axis", std::int64_t{1}}});
  }

  OpDesc describe(const LayerContext& context) const override {
    ConcatDesc desc;
    desc.batch = context.batch;
    for (const ActivationShape& in : context.in) desc.in.push_back(in.shape);
    desc.out = context.out.shape;
    desc.flatten = flattens(context.in);
    desc.type = context.type;
    return desc;
  }

 private:
  static bool is_size_of(const ActivationShape& a, const ActivationShape& b) {
    return a.shape.h == b.shape.h && a.shape.w == b.shape.w;
  }
  /// Returns true for vectors that must be concatenated by features, not by channels.
  static bool flattens(std::span<const ActivationShape> in) {
    return std::any_of(in.begin(), in.end(), [&](const ActivationShape& each) {
      return each.flat && !is_size_of(in[0], each);
    });
  }

  [[noreturn]] static void refuse(const ActivationShape& first, const ActivationShape& other,
                                  std::size_t place) {
    fail(ErrorKind::usage,
         "expected inputs of the same height and width, found {} as input 1 and {} as input {}{}",
         first.text(), other.text(), place,
         first.flat != other.flat
             ? "; flatten the image (C x H x W) as well, or neither input"
             : " (C x H x W); a stride, a pooling or Upsample changes the size");
  }
};

LayerKind concat_layer() {
  static const ObjectTable table = joining_table(object_table<ConcatOptions>(
      "Concat",
      "Concatenates the channels of the outputs of two to eight layers, which `from` names. "
      "Vectors are concatenated by features, even those of flattened images of different sizes.",
      {}));
  return layer_kind<Concat>(table);
}

}  // namespace dpt
