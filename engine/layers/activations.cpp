// The activation functions except ReLU, like the torch.nn layers of the same names. Their formulas
// are in kernels/common/activations.h.
#include <array>

#include "engine/layers/activation_shape.h"
#include "engine/layers/kinds.h"
#include "engine/layers/op_writer.h"
#include "kernels/base/enum_names.h"

namespace dpt {

/// Base class of the activation functions. They take any shape and have no parameters.
class Activation : public Layer {
 public:
  ActivationShape infer(std::span<const ActivationShape> in) const override { return in[0]; }
  /// Returns true if backward reads y and not x, so that forward may overwrite x.
  bool is_in_place() const override {
    return std::visit([](const auto& formula) { return formula.kOfY; }, formula_);
  }
  OpDesc describe(const LayerContext& context) const override {
    ActivationDesc desc;
    desc.formula = formula_;
    desc.batch = context.batch;
    desc.shape = context.out.shape;
    desc.type = context.type;
    desc.training = context.training;
    return desc;
  }

 protected:
  explicit Activation(const activations::Formula& formula) : formula_(formula) {}

 private:
  activations::Formula formula_;
};

struct NoOptions {};

struct LeakyReluOptions {
  double negative_slope = 0.01;
};

class LeakyReLU final : public Activation {
 public:
  using Options = LeakyReluOptions;
  explicit LeakyReLU(const Options& options)
      : Activation(formula_of(static_cast<float>(options.negative_slope))),
        slope_(options.negative_slope) {}
  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    return writer.op("LeakyRelu", {context.in[0]}, {{"alpha", static_cast<float>(slope_)}});
  }
  std::string detail() const override {
    return slope_ == Options().negative_slope ? "" : fmt::format("negative_slope {}", slope_);
  }

 private:
  static activations::Formula formula_of(float slope) {
    if (slope >= 0) return activations::LeakyRelu<true>{slope};
    return activations::LeakyRelu<false>{slope};
  }

  double slope_;
};

enum class GeluApproximation : std::uint8_t { none, tanh };
constexpr auto enum_names(GeluApproximation) {
  return std::to_array<EnumName<GeluApproximation>>(
      {{GeluApproximation::none, "none"}, {GeluApproximation::tanh, "tanh"}});
}

struct GeluOptions {
  GeluApproximation approximate = GeluApproximation::none;
};

class GELU final : public Activation {
 public:
  using Options = GeluOptions;
  explicit GELU(const Options& options)
      : Activation(formula_of(options.approximate)), approximation_(options.approximate) {}
  /// Writes several operations, because ONNX has Gelu only from opset 20 on.
  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    const std::string& x = context.in[0];
    std::string inner;
    if (approximation_ == GeluApproximation::tanh) {
      const std::string square = writer.op("Mul", {x, x});
      const std::string cube = writer.op("Mul", {square, x});
      const std::string bent =
          writer.op("Add", {x, writer.op("Mul", {cube, writer.scalar(0.044715F)})});
      inner = writer.op("Tanh", {writer.op("Mul", {bent, writer.scalar(0.7978845608F)})});
    } else {
      inner = writer.op("Erf", {writer.op("Mul", {x, writer.scalar(0.7071067812F)})});
    }
    const std::string factor = writer.op("Add", {inner, writer.scalar(1.0F)});
    return writer.op("Mul", {writer.op("Mul", {x, writer.scalar(0.5F)}), factor});
  }
  std::string detail() const override {
    return approximation_ == GeluApproximation::tanh ? "approximate tanh" : "";
  }

 private:
  static activations::Formula formula_of(GeluApproximation approximation) {
    if (approximation == GeluApproximation::tanh) return activations::GeluTanh{};
    return activations::Gelu{};
  }

  GeluApproximation approximation_;
};

struct SoftplusOptions {
  double beta = 1, threshold = 20;
};

class Softplus final : public Activation {
 public:
  using Options = SoftplusOptions;
  explicit Softplus(const Options& options)
      : Activation(activations::Softplus{static_cast<float>(options.beta),
                                         static_cast<float>(options.threshold)}),
        options_(options) {}
  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    const std::string beta = writer.scalar(static_cast<float>(options_.beta));
    const std::string scaled = writer.op("Mul", {context.in[0], beta});
    const std::string smooth = writer.op("Div", {writer.op("Softplus", {scaled}), beta});
    const std::string is_linear =
        writer.op("Greater", {scaled, writer.scalar(static_cast<float>(options_.threshold))});
    return writer.op("Where", {is_linear, context.in[0], smooth});
  }
  std::string detail() const override {
    if (options_.beta == 1 && options_.threshold == 20) return {};
    return fmt::format("beta {}, threshold {}", options_.beta, options_.threshold);
  }

 private:
  Options options_;
};

/// Activation without options. The function object `Write` exports it to ONNX.
template <class Formula, class Write>
class PlainActivation final : public Activation {
 public:
  using Options = NoOptions;
  explicit PlainActivation(const Options&) : Activation(Formula{}) {}
  std::string write_ops(OpWriter& writer, const OpContext& context) const override {
    return Write()(writer, context.in[0]);
  }
};

template <class Formula, class Write>
LayerKind plain_layer(const char* name, const char* doc, Write) {
  static const ObjectTable table = activation_table(object_table<NoOptions>(name, doc, {}));
  return layer_kind<PlainActivation<Formula, Write>>(table);
}

LayerKind leaky_relu_layer() {
  using O = LeakyReluOptions;
  static const ObjectTable table = activation_table(object_table<O>(
      "LeakyReLU", "x where it is above 0, else negative_slope * x.",
      {field("negative_slope", &O::negative_slope, "Slope below 0.").range(-1e6, 1e6)}));
  return layer_kind<LeakyReLU>(table);
}

LayerKind gelu_layer() {
  using O = GeluOptions;
  static const ObjectTable table = activation_table(object_table<O>(
      "GELU",
      "Gaussian error linear unit, x times the cumulative distribution function of the normal "
      "distribution.",
      {field("approximate", &O::approximate, "tanh: the approximation by a hyperbolic tangent.")}));
  return layer_kind<GELU>(table);
}

LayerKind softplus_layer() {
  using O = SoftplusOptions;
  static const ObjectTable table = activation_table(object_table<O>(
      "Softplus", "A smooth ReLU, log(1 + exp(beta * x)) / beta.",
      {field("beta", &O::beta, "Sharpness of the curve: the larger, the closer to ReLU.").above(0),
       field("threshold", &O::threshold, "Limit of beta * x above which the output is x.")}));
  return layer_kind<Softplus>(table);
}

LayerKind relu6_layer() {
  return plain_layer<activations::Relu6>(
      "ReLU6", "min(max(x, 0), 6).", [](OpWriter& writer, const std::string& x) {
        return writer.op("Clip", {x, writer.scalar(0.0F), writer.scalar(6.0F)});
      });
}

LayerKind silu_layer() {
  return plain_layer<activations::Silu>("SiLU", "x * sigmoid(x), also called Swish.",
                                        [](OpWriter& writer, const std::string& x) {
                                          return writer.op("Mul", {x, writer.op("Sigmoid", {x})});
                                        });
}

LayerKind sigmoid_layer() {
  return plain_layer<activations::Sigmoid>(
      "Sigmoid", "1 / (1 + exp(-x)).",
      [](OpWriter& writer, const std::string& x) { return writer.op("Sigmoid", {x}); });
}

LayerKind tanh_layer() {
  return plain_layer<activations::Tanh>(
      "Tanh", "Hyperbolic tangent.",
      [](OpWriter& writer, const std::string& x) { return writer.op("Tanh", {x}); });
}

LayerKind hardswish_layer() {
  return plain_layer<activations::Hardswish>(
      "Hardswish", "x * ReLU6(x + 3) / 6.",
      [](OpWriter& writer, const std::string& x) { return writer.op("HardSwish", {x}); });
}

LayerKind hardsigmoid_layer() {
  return plain_layer<activations::Hardsigmoid>(
      "Hardsigmoid", "ReLU6(x + 3) / 6.", [](OpWriter& writer, const std::string& x) {
        return writer.op("HardSigmoid", {x}, {{"alpha", 1.0F / 6.0F}, {"beta", 0.5F}});
      });
}

}  // namespace dpt
