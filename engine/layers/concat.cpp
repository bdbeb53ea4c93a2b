// Concat: the channels of several layers' outputs side by side, as torch.cat along dimension 1.
#include <algorithm>

#include "engine/layers/kind.h"
#include "engine/layers/op_writer.h"

namespace dpt {

struct ConcatOptions {};

class Concat final : public Layer {
 public:
  using Options = ConcatOptions;
  static const ObjectTable& table();

  explicit Concat(const Options&) {}

  InputCount input_count() const override { return {2, kMaxInputs}; }

  /// Vectors of one image size are those images flattened: their channels go side by side too.
  ActivationShape infer(std::span<const ActivationShape> in) const override {
    ActivationShape out = in[0];
    for (std::size_t k = 1; k < in.size(); ++k) {
      const ActivationShape& other = in[k];
      const bool is_alike =
          other.flat == out.flat && other.shape.h == out.shape.h && other.shape.w == out.shape.w;
      if (!is_alike) refuse(in[0], other, k + 1);
      out.shape.c += other.shape.c;
    }
    return out;
  }

  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    return writer.op("Concat", {context.in.begin(), context.in.end()}, {{"axis", std::int64_t{1}}});
  }

  std::unique_ptr<Op> compile(Backend& backend, const LayerContext& context) const override {
    ConcatDesc desc;
    desc.batch = context.batch;
    for (const ActivationShape& in : context.in) desc.in.push_back(in.shape);
    desc.out = context.out.shape;
    desc.type = context.type;
    return backend.concat(desc);
  }

 private:
  [[noreturn]] static void refuse(const ActivationShape& first, const ActivationShape& other,
                                  std::size_t place) {
    if (first.flat && other.flat) {
      fail(ErrorKind::usage,
           "expected vectors whose features are in one order, found in place 1 and {} vectors of "
           "{} and {} features that are images of different sizes flattened, or only one of them "
           "is; put a Linear after the Flatten",
           place, first.text(), other.text());
    }
    fail(ErrorKind::usage,
         "expected inputs of one height and width, found {} in place 1 and {} in place {}{}",
         first.text(), other.text(), place,
         first.flat != other.flat
             ? "; flatten the image (C x H x W) too, or neither"
             : " (C x H x W); a stride, a pooling or Upsample changes the size");
  }
};

const ObjectTable& Concat::table() {
  static const ObjectTable table = joining_table(object_table<ConcatOptions>(
      "Concat",
      "The channels of two to eight layers' outputs side by side, which `from` names; of vectors "
      "the features.",
      {}));
  return table;
}

template LayerKind kind_of<Concat>();

}  // namespace dpt
