// Shared parts of the pooling layers. They are in a header because a convolution fuses the pooling
// after it into its own kernel.
#pragma once

#include <string>

#include "engine/layers/activation_shape.h"
#include "engine/layers/layer.h"

namespace dpt {

/// A pooling, as described by its options.
struct PoolGeometry {
  PoolKind kind = PoolKind::max;
  Size2 kernel{2, 2}, stride{2, 2}, padding{0, 0}, dilation{1, 1};
  bool ceil_mode = false;
  bool count_include_pad = true;
  std::int64_t divisor_override = 0;
  bool whole_image = false;          ///< the kernel covers the image, whatever its size
  std::optional<Size2> output_size;  ///< if set, it and the image size determine the windows
};

/// Base of the pooling layers; also the pooling inside a fused convolution.
class Pool2d : public Layer {
 public:
  explicit Pool2d(const PoolGeometry& geometry) : geometry_(geometry) {}

  const PoolGeometry& geometry() const { return geometry_; }
  /// Returns the description of the pooling for an input of shape `in`.
  Pool2dDesc pool_desc(const LayerContext& context, const ActivationShape& in) const;

  /// Returns the output size, computed like PyTorch's pooling_output_shape.
  ActivationShape infer(std::span<const ActivationShape> in) const override;
  OpDesc describe(const LayerContext& context) const override;
  std::string write_ops(OpWriter& writer, const OpContext& context) const override;
  std::string detail() const override;

 private:
  PoolGeometry geometry_;
};

}  // namespace dpt
