#include "engine/self_check/operation_text.h"

#include <variant>

#include <fmt/format.h>

namespace dpt {
namespace {

std::string text(const SampleShape& shape) {
  return fmt::format("{}x{}x{}", shape.h, shape.w, shape.c);
}
std::string text(const Size2& size) {
  return fmt::format("{}x{}", size.h, size.w);
}

/// Builds the text from its parts: a name, then options separated by commas.
class Text {
 public:
  explicit Text(std::string beginning) : text_(std::move(beginning)) {}
  Text& add(const std::string& part) {
    text_ += ", " + part;
    return *this;
  }
  Text& add_if(bool given, const std::string& part) { return given ? add(part) : *this; }
  Text& size(const char* name, const Size2& value, const Size2& usual) {
    return add_if(value != usual, fmt::format("{} {}", name, text(value)));
  }
  /// Ends the text with the options that all descriptions have.
  template <class Desc>
  std::string end(const Desc& d) {
    if constexpr (requires { d.tf32; }) add_if(d.tf32, "tf32");
    if constexpr (requires { d.input_gradient; }) {
      add_if(d.training && !d.input_gradient, "no input gradient");
    }
    if constexpr (requires { d.training; }) add_if(!d.training, "inference");
    return add(name_of(d.type)).text_;
  }

 private:
  std::string text_;
};

/// Begins the text of an operation that turns images into images of another shape.
template <class Desc>
Text mapping(const std::string& name, const Desc& d) {
  return Text(fmt::format("{} of {} x {} to {}", name, d.batch, text(d.in), text(d.out)));
}
/// Begins the text of an operation that keeps the shape.
template <class Desc>
Text on_shape(const std::string& name, const Desc& d) {
  return Text(fmt::format("{} of {} x {}", name, d.batch, text(d.shape)));
}

/// Adds the options of both kinds of convolution.
template <class Desc>
Text& convolution(Text& out, const Desc& d) {
  return out.size("stride", d.stride, {1, 1})
      .size("padding", d.padding, {0, 0})
      .size("dilation", d.dilation, {1, 1})
      .add_if(d.groups != 1, fmt::format("{} groups", d.groups))
      .add_if(d.bias, "bias");
}

Text& pooling(Text& out, const Pool2dDesc& d) {
  return out.size("stride", d.stride, d.kernel)
      .size("padding", d.padding, {0, 0})
      .size("dilation", d.dilation, {1, 1})
      .add_if(d.kind == PoolKind::average && !d.count_include_pad, "without padding in the divisor")
      .add_if(d.divisor_override != 0, fmt::format("divisor {}", d.divisor_override));
}
std::string pool_name(const Pool2dDesc& d) {
  const char* kind = d.kind == PoolKind::max ? "MaxPool2d" : "AvgPool2d";
  return d.adaptive ? std::string("AdaptiveAvgPool2d") : fmt::format("{} {}", kind, text(d.kernel));
}

std::string words(const Conv2dDesc& d) {
  Text out = mapping("Conv2d " + text(d.kernel), d);
  convolution(out, d).add_if(d.relu, "ReLU");
  if (d.pool) {
    out.add(fmt::format("then {} of {}", pool_name(*d.pool), text(d.conv_out)));
    pooling(out, *d.pool);
  }
  return out.end(d);
}
std::string words(const ConvTranspose2dDesc& d) {
  Text out = mapping("ConvTranspose2d " + text(d.kernel), d);
  return convolution(out, d).end(d);
}
std::string words(const LinearDesc& d) {
  return Text(fmt::format("Linear of {} x {} to {}", d.batch, d.in, d.out))
      .add_if(d.bias, "bias")
      .add_if(d.relu, "ReLU")
      .end(d);
}
std::string words(const Pool2dDesc& d) {
  Text out = mapping(pool_name(d), d);
  return pooling(out, d).end(d);
}
std::string words(const ReluDesc& d) {
  return on_shape("ReLU", d).end(d);
}

/// Name of each activation, with its numbers.
struct ActivationName {
  template <bool kY>
  std::string operator()(const activations::LeakyRelu<kY>& f) const {
    return fmt::format("LeakyReLU {}", f.slope);
  }
  std::string operator()(const activations::Relu6&) const { return "ReLU6"; }
  std::string operator()(const activations::Gelu&) const { return "GELU"; }
  std::string operator()(const activations::GeluTanh&) const { return "GELU with tanh"; }
  std::string operator()(const activations::Silu&) const { return "SiLU"; }
  std::string operator()(const activations::Sigmoid&) const { return "Sigmoid"; }
  std::string operator()(const activations::Tanh&) const { return "Tanh"; }
  std::string operator()(const activations::Softplus& f) const {
    return fmt::format("Softplus {} {}", f.beta, f.threshold);
  }
  std::string operator()(const activations::Hardswish&) const { return "Hardswish"; }
  std::string operator()(const activations::Hardsigmoid&) const { return "Hardsigmoid"; }
};
std::string words(const ActivationDesc& d) {
  return on_shape(std::visit(ActivationName{}, d.formula), d).end(d);
}
std::string words(const DropoutDesc& d) {
  return on_shape(d.channels ? "Dropout2d" : "Dropout", d).add(fmt::format("p {}", d.p)).end(d);
}
std::string words(const SumDesc& d) {
  return on_shape(fmt::format("Add of {} inputs", d.inputs), d).add_if(d.relu, "ReLU").end(d);
}

template <class Shapes>
std::string shapes_text(const Shapes& shapes) {
  std::string all;
  for (const SampleShape& shape : shapes) all += (all.empty() ? "" : " and ") + text(shape);
  return all;
}
std::string words(const ConcatDesc& d) {
  return Text(fmt::format("Concat of {} x {}", d.batch, shapes_text(d.in)))
      .add_if(d.flatten, "flat")
      .end(d);
}
std::string words(const ProductDesc& d) {
  return Text(fmt::format("Multiply of {} x {}", d.batch, shapes_text(d.in))).end(d);
}
std::string words(const PixelMapDesc& d) {
  return mapping("pixel map", d)
      .size("scale", d.scale, {1, 1})
      .size("before", d.before, {0, 0})
      .end(d);
}
std::string words(const BatchNormDesc& d) {
  return on_shape("BatchNorm", d)
      .add(fmt::format("eps {}", d.eps))
      .add_if(d.affine, "affine")
      .add_if(!d.batch_statistics, "running statistics")
      .add_if(d.relu, "ReLU")
      .end(d);
}
std::string words(const GroupNormDesc& d) {
  return on_shape("GroupNorm", d)
      .add(fmt::format("{} groups", d.groups))
      .add(fmt::format("eps {}", d.eps))
      .add_if(d.weight, "weight")
      .add_if(d.bias, "bias")
      .end(d);
}
std::string words(const ChannelScaleDesc& d) {
  return on_shape(d.negative_only ? "PReLU" : "LayerScale", d)
      .add_if(d.one_weight, "one weight")
      .end(d);
}

}  // namespace

std::string operation_text(const OpDesc& desc) {
  return std::visit([](const auto& each) { return words(each); }, desc);
}

std::string wrong_value_text(const std::string& name, std::size_t at, std::size_t count, double got,
                             double want, double tolerance) {
  // Adding 0 turns -0 into 0.
  return fmt::format("{}, element {} of {}: {:.9g}; expected {:.9g}, tolerance {:.2g}", name, at,
                     count, got, want + 0.0, tolerance);
}

}  // namespace dpt
