// Dropout and Dropout2d as in torch.nn, StochasticDepth as in torchvision. The draws for a sample
// depend only on the seed, the step, the sample and the name of the layer. So they do not change
// after a resume, or if a batch is divided differently.
#include "engine/layers/activation_shape.h"
#include "engine/layers/kinds.h"
#include "engine/layers/op_writer.h"
#include "engine/layers/shape_checks.h"

namespace dpt {

struct DropoutOptions {
  double p = 0.5;
};

/// Base class of the three layers. They differ in the unit that they drop.
class AnyDropout : public Layer {
 public:
  using Options = DropoutOptions;

  bool is_in_place() const override { return true; }
  OpDesc describe(const LayerContext& context) const override {
    DropoutDesc desc;
    desc.batch = context.batch;
    desc.shape = units(context.out.shape);
    desc.p = p_;
    desc.channels = channels_;
    desc.type = context.type;
    desc.training = context.training;
    desc.seed = context.seed;
    desc.stream = context.stream;
    return desc;
  }
  std::string write_ops(OpWriter&, const OpContext& context) const override {
    return context.in[0];
  }
  std::string detail() const override { return fmt::format("p {}", p_); }
  static ObjectTable make_table(const char* name, const char* doc, const char* p_doc) {
    using O = Options;
    return object_table<O>(name, doc, {field("p", &O::p, p_doc).range(0, 1)},
                           [](const O& options) -> std::string {
                             if (options.p < 1) return {};
                             return "p must be below 1: with 1, nothing would be left";
                           });
  }

 protected:
  AnyDropout(const Options& options, bool channels) : p_(options.p), channels_(channels) {}

 private:
  /// Returns the shape of a sample as dropout sees it. If `channels_`, each channel of this shape
  /// is dropped as a whole.
  virtual SampleShape units(const SampleShape& shape) const { return shape; }

  double p_;
  bool channels_;
};

class Dropout final : public AnyDropout {
 public:
  explicit Dropout(const Options& options) : AnyDropout(options, false) {}
  ActivationShape infer(std::span<const ActivationShape> in) const override { return in[0]; }
};

class Dropout2d final : public AnyDropout {
 public:
  explicit Dropout2d(const Options& options) : AnyDropout(options, true) {}
  ActivationShape infer(std::span<const ActivationShape> in) const override {
    if (in[0].flat) {
      throw ShapeError(fmt::format("expected an image (C x H x W) as input, found a vector of {} "
                                   "features; use Dropout, or move it before the Flatten",
                                   in[0].elements()),
                       in[0]);
    }
    return in[0];
  }
};

class StochasticDepth final : public AnyDropout {
 public:
  explicit StochasticDepth(const Options& options) : AnyDropout(options, true) {}
  ActivationShape infer(std::span<const ActivationShape> in) const override { return in[0]; }

 private:
  /// Treats the whole sample as one channel.
  SampleShape units(const SampleShape& shape) const override { return {shape.elements(), 1, 1}; }
};

LayerKind dropout_layer() {
  static const ObjectTable table =
      AnyDropout::make_table("Dropout",
                             "In training, sets random elements to 0 and multiplies the others by "
                             "1 / (1 - p). In evaluation, passes its input on unchanged.",
                             "Probability of an element being set to 0; below 1.");
  return layer_kind<Dropout>(table);
}

LayerKind dropout2d_layer() {
  static const ObjectTable table = AnyDropout::make_table(
      "Dropout2d",
      "In training, sets random channels of an image to 0 and multiplies the others by 1 / (1 - "
      "p). In evaluation, passes its input on unchanged.",
      "Probability of a channel being set to 0; below 1.");
  return layer_kind<Dropout2d>(table);
}

LayerKind stochastic_depth_layer() {
  static const ObjectTable table =
      AnyDropout::make_table("StochasticDepth",
                             "In training, sets all values of random samples to 0 and multiplies "
                             "the other samples by 1 / (1 - p); used at the end of a residual "
                             "branch. In evaluation, passes its input on unchanged.",
                             "Probability of a sample being set to 0; below 1.");
  return layer_kind<StochasticDepth>(table);
}

}  // namespace dpt
