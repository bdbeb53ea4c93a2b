// ReLU, in a header because convolution and linear layers fuse it into their own kernels.
#pragma once

#include "engine/layers/activation_shape.h"
#include "engine/layers/layer.h"

namespace dpt {

struct ReluOptions {};

/// y = max(x, 0), any shape.
class ReLU final : public Layer {
 public:
  using Options = ReluOptions;

  explicit ReLU(const Options&) {}
  ActivationShape infer(std::span<const ActivationShape> in) const override { return in[0]; }
  bool is_in_place() const override { return true; }
  OpDesc describe(const LayerContext& context) const override;
  std::string write_ops(OpWriter& writer, const OpContext& context) const override;
};

}  // namespace dpt
