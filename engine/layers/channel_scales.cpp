// PReLU, like torch.nn.PReLU, and LayerScale. LayerScale is the learned factor of each channel at
// the end of ConvNeXt's branches ("Going deeper with image transformers", Touvron et al. 2021).
// Both use the same operation.
#include "engine/layers/activation_shape.h"
#include "engine/layers/kinds.h"
#include "engine/layers/op_writer.h"
#include "engine/layers/param_spec.h"
#include "engine/layers/shape_checks.h"

namespace dpt {
namespace {

ChannelScaleDesc scale_desc(const LayerContext& context) {
  ChannelScaleDesc desc;
  desc.batch = context.batch;
  desc.shape = context.out.shape;
  if (context.out.flat) desc.shape = {1, 1, context.out.elements()};
  desc.type = context.type;
  desc.training = context.training;
  desc.input_gradient = context.input_gradient;
  return desc;
}

}  // namespace

struct PreluOptions {
  std::int64_t num_parameters = 1;
  double init = 0.25;
};

class PReLU final : public Layer {
 public:
  using Options = PreluOptions;
  explicit PReLU(const Options& options) : options_(options) {}

  ActivationShape infer(std::span<const ActivationShape> in) const override {
    if (options_.num_parameters == 1 || options_.num_parameters == in[0].channels()) return in[0];
    throw ShapeError(fmt::format("num_parameters {} must be 1 or the number of {} of its input, {}",
                                 options_.num_parameters, in[0].flat ? "features" : "channels",
                                 in[0].channels()),
                     in[0]);
  }
  std::vector<ParamSpec> params(std::span<const ActivationShape> in) const override {
    ParamSpec weight;
    weight.suffix = "weight";
    weight.file_shape = {options_.num_parameters};
    weight.init = {InitKind::constant, options_.init};
    if (options_.num_parameters > 1 && in[0].flat && in[0].shape.h * in[0].shape.w > 1) {
      weight.layout = ParamLayout::vector_hwc;
      weight.hwc = in[0].shape;
    }
    return {weight};
  }
  OpDesc describe(const LayerContext& context) const override {
    ChannelScaleDesc desc = scale_desc(context);
    desc.one_weight = options_.num_parameters == 1;
    desc.negative_only = true;
    return desc;
  }
  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    std::string weight = writer.param("weight");
    if (options_.num_parameters > 1 && !context.shapes[0].flat) {
      weight = writer.op("Unsqueeze", {weight, writer.integers({1, 2})});
    }
    return writer.op("PRelu", {context.in[0], weight});
  }
  std::string detail() const override {
    const std::int64_t count = options_.num_parameters;
    return count == 1 ? "one weight" : fmt::format("{} weights", count);
  }

 private:
  Options options_;
};

struct LayerScaleOptions {
  double init = 1e-6;
};

class LayerScale final : public Layer {
 public:
  using Options = LayerScaleOptions;
  explicit LayerScale(const Options& options) : options_(options) {}

  ActivationShape infer(std::span<const ActivationShape> in) const override {
    require_image(in[0]);
    return in[0];
  }
  std::vector<ParamSpec> params(std::span<const ActivationShape> in) const override {
    ParamSpec factors;
    factors.file_shape = {in[0].shape.c, 1, 1};
    factors.init = {InitKind::constant, options_.init};
    return {factors};
  }
  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    return writer.op("Mul", {context.in[0], writer.param("")});
  }
  OpDesc describe(const LayerContext& context) const override { return scale_desc(context); }

 private:
  Options options_;
};

LayerKind prelu_layer() {
  using O = PreluOptions;
  static const ObjectTable table =
      object_table<O>("PReLU", "x where it is above 0, else weight * x with a learned weight.",
                      {field("num_parameters", &O::num_parameters,
                             "Number of weights: 1, or one for each channel of the input.")
                           .at_least(1),
                       field("init", &O::init, "Starting value of the weights.").range(-1e6, 1e6)});
  return layer_kind<PReLU>(table);
}

LayerKind layer_scale_layer() {
  using O = LayerScaleOptions;
  static const ObjectTable table =
      object_table<O>("LayerScale",
                      "Multiplies each channel of an image by a learned factor, as in ConvNeXt. "
                      "Its parameter has the layer's own name, as in torchvision.",
                      {field("init", &O::init, "Starting value of the factors.").range(-1e6, 1e6)});
  return layer_kind<LayerScale>(table);
}

}  // namespace dpt
