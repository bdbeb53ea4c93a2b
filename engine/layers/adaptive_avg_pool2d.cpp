// AdaptiveAvgPool2d, like torch.nn.AdaptiveAvgPool2d: means over windows that divide the image as
// evenly as possible. Without output_size, the mean of the whole image.
#include "engine/layers/kinds.h"
#include "engine/layers/pool2d.h"

namespace dpt {

struct AdaptiveAvgPool2dOptions {
  Size2 output_size{1, 1};
};

class AdaptiveAvgPool2d final : public Pool2d {
 public:
  using Options = AdaptiveAvgPool2dOptions;

  explicit AdaptiveAvgPool2d(const Options& options) : Pool2d(geometry_of(options.output_size)) {}

 private:
  static PoolGeometry geometry_of(const Size2& output_size) {
    PoolGeometry geometry;
    geometry.kind = PoolKind::average;
    geometry.whole_image = output_size == Size2{1, 1};
    if (!geometry.whole_image) geometry.output_size = output_size;
    return geometry;
  }
};

LayerKind adaptive_avg_pool2d_layer() {
  using O = AdaptiveAvgPool2dOptions;
  static const ObjectTable table = object_table<O>(
      "AdaptiveAvgPool2d",
      "Average pooling to a given size, like torch.nn.AdaptiveAvgPool2d; without a size, the mean "
      "of each channel.",
      {field("output_size", &O::output_size, "Height and width of the output.").range(1, 1024)});
  return layer_kind<AdaptiveAvgPool2d>(table);
}

}  // namespace dpt
