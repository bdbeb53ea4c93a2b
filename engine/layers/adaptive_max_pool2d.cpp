// AdaptiveMaxPool2d, like torch.nn.AdaptiveMaxPool2d(1): the maximum of the whole image, per
// channel.
#include "engine/layers/activation_shape.h"
#include "engine/layers/kinds.h"
#include "engine/layers/pool2d.h"
#include "engine/layers/shape_checks.h"

namespace dpt {

struct AdaptiveMaxPool2dOptions {
  Size2 output_size{1, 1};
};

class AdaptiveMaxPool2d final : public Pool2d {
 public:
  using Options = AdaptiveMaxPool2dOptions;

  explicit AdaptiveMaxPool2d(const Options& options)
      : Pool2d(whole_image()), output_size_(options.output_size) {}

  ActivationShape infer(std::span<const ActivationShape> in) const override {
    const ActivationShape out = Pool2d::infer(in);
    if (output_size_ == Size2{1, 1}) return out;
    throw ShapeError(
        fmt::format("output_size {} is not supported: only 1 (the maximum of the whole "
                    "image) is; use MaxPool2d for other sizes",
                    text_of(output_size_)),
        {{output_size_.h, output_size_.w, in[0].shape.c}, false});
  }

 private:
  static PoolGeometry whole_image() {
    PoolGeometry geometry;
    geometry.kind = PoolKind::max;
    geometry.whole_image = true;
    return geometry;
  }

  Size2 output_size_;
};

LayerKind adaptive_max_pool2d_layer() {
  using O = AdaptiveMaxPool2dOptions;
  static const ObjectTable table = object_table<O>(
      "AdaptiveMaxPool2d", "Global maximum pooling: the maximum of each channel.",
      {field("output_size", &O::output_size, "Height and width of the output; only 1 is supported.")
           .range(1, 1024)});
  return layer_kind<AdaptiveMaxPool2d>(table);
}

}  // namespace dpt
