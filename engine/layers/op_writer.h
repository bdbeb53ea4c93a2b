// Interface through which layers export themselves. It writes operations of the ONNX standard,
// opset 17, on float32 tensors (N,C,H,W), or (N,features) for vectors. As in PyTorch and in weights
// files, a Flatten orders features as (C,H,W), which is also the order of a Linear's weight
// columns.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/layers/activation_shape.h"
#include "engine/layers/layer.h"

namespace dpt {

/// Attribute of an operation. Its value has one of the ONNX types that layers need.
struct OpAttribute {
  std::string name;
  std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>> value;
};

/// Values of ONNX element types, for the attribute `to` of Cast.
inline constexpr std::int64_t kOpFloat = 1, kOpInt64 = 7, kOpDouble = 11;

class OpWriter {
 public:
  virtual ~OpWriter() = default;
  /// Adds an operation and returns the name of its output. An empty name in `inputs` stands for an
  /// input that is left out.
  virtual std::string op(const std::string& type, std::vector<std::string> inputs,
                         std::vector<OpAttribute> attributes = {}) = 0;
  /// Returns the name of the layer's parameter with this ParamSpec::suffix, in file layout.
  /// Counters are not available.
  virtual std::string param(const std::string& suffix) = 0;
  /// Adds a constant to the model and returns its name; an empty shape makes a scalar.
  virtual std::string floats(std::vector<std::int64_t> shape, std::vector<float> values) = 0;
  virtual std::string doubles(std::vector<std::int64_t> shape, std::vector<double> values) = 0;
  virtual std::string integers(std::vector<std::int64_t> values) = 0;
  /// Returns the name of a value: the result of `yes` or of `no`, depending on the scalar
  /// `condition`. Each function writes the operations of its branch.
  virtual std::string either(const std::string& condition, const std::function<std::string()>& yes,
                             const std::function<std::string()>& no) = 0;

  std::string scalar(float value) { return floats({}, {value}); }
};

/// Inputs and output of a layer: names of values, and their shapes.
struct OpContext {
  std::span<const std::string> in;
  std::span<const ActivationShape> shapes;
  ActivationShape out;
};

}  // namespace dpt
