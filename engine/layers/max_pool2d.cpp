// MaxPool2d, like torch.nn.MaxPool2d.
#include <optional>

#include "engine/layers/kinds.h"
#include "engine/layers/pool2d.h"

namespace dpt {

struct MaxPool2dOptions {
  Size2 kernel_size{2, 2};
  std::optional<Size2> stride;
  Size2 padding{0, 0};
  Size2 dilation{1, 1};
  bool ceil_mode = false;
};

class MaxPool2d final : public Pool2d {
 public:
  using Options = MaxPool2dOptions;

  explicit MaxPool2d(const Options& options) : Pool2d(geometry_of(options)) {}

 private:
  static PoolGeometry geometry_of(const Options& o) {
    PoolGeometry geometry;
    geometry.kind = PoolKind::max;
    geometry.kernel = o.kernel_size;
    geometry.stride = o.stride.value_or(o.kernel_size);
    geometry.padding = o.padding;
    geometry.dilation = o.dilation;
    geometry.ceil_mode = o.ceil_mode;
    return geometry;
  }
};

LayerKind max_pool2d_layer() {
  using O = MaxPool2dOptions;
  static const ObjectTable table = object_table<O>(
      "MaxPool2d", "Maximum over each window.",
      {field("kernel_size", &O::kernel_size, "Height and width of the window.")
           .required()
           .range(1, 1024),
       field("stride", &O::stride, "Stride of the window; kernel_size if not given.")
           .range(1, 1024),
       field("padding", &O::padding, "Padding on each side, at most half of kernel_size.")
           .range(0, 512),
       field("dilation", &O::dilation, "Spacing between the elements of the window.")
           .range(1, 1024),
       field("ceil_mode", &O::ceil_mode,
             "Round the output size up: keep a last window that extends past the border.")});
  return layer_kind<MaxPool2d>(table);
}

}  // namespace dpt
