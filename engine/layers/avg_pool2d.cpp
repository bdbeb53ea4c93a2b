// AvgPool2d, like torch.nn.AvgPool2d.
#include <optional>

#include "engine/layers/kinds.h"
#include "engine/layers/pool2d.h"

namespace dpt {

struct AvgPool2dOptions {
  Size2 kernel_size{2, 2};
  std::optional<Size2> stride;
  Size2 padding{0, 0};
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::optional<std::int64_t> divisor_override;
};

class AvgPool2d final : public Pool2d {
 public:
  using Options = AvgPool2dOptions;

  explicit AvgPool2d(const Options& options) : Pool2d(geometry_of(options)) {}

 private:
  static PoolGeometry geometry_of(const Options& o) {
    PoolGeometry geometry;
    geometry.kind = PoolKind::average;
    geometry.kernel = o.kernel_size;
    geometry.stride = o.stride.value_or(o.kernel_size);
    geometry.padding = o.padding;
    geometry.ceil_mode = o.ceil_mode;
    geometry.count_include_pad = o.count_include_pad;
    geometry.divisor_override = o.divisor_override.value_or(0);
    return geometry;
  }
};

LayerKind avg_pool2d_layer() {
  using O = AvgPool2dOptions;
  static const ObjectTable table = object_table<O>(
      "AvgPool2d", "Average over each window.",
      {field("kernel_size", &O::kernel_size, "Height and width of the window.")
           .required()
           .range(1, 1024),
       field("stride", &O::stride, "Stride of the window; kernel_size if not given.")
           .range(1, 1024),
       field("padding", &O::padding, "Zero padding on each side, at most half of kernel_size.")
           .range(0, 512),
       field("ceil_mode", &O::ceil_mode,
             "Round the output size up: keep a last window that extends past the border."),
       field("count_include_pad", &O::count_include_pad,
             "Include the padding in the divisor, but never the part of a window that extends past "
             "the padding."),
       field("divisor_override", &O::divisor_override,
             "Divide the sum of each window by this number instead of by its size.")
           .range(1, 1048576)});
  return layer_kind<AvgPool2d>(table);
}

}  // namespace dpt
