// Writer to which layers export themselves: operations of the ONNX standard, opset 17, on float32
// tensors (N,C,H,W), or (N,features) for vectors. These are PyTorch's layouts, which parameters
// have in files: a Flatten takes the features in the order (C,H,W), in which the columns of a
// Linear's weight are stored.
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

/// An attribute of an operation, of one of the standard's types that layers need.
struct OpAttribute {
  std::string name;
  std::variant<std::int64_t, float, std::string, std::vector<std::int64_t>> value;
};

/// Element types, as the attribute `to` of Cast names them.
inline constexpr std::int64_t kOpFloat = 1, kOpInt64 = 7, kOpDouble = 11;

class OpWriter {
 public:
  virtual ~OpWriter() = default;
  /// Adds an operation and gives its output. An input that is empty is left out.
  virtual std::string op(const std::string& type, std::vector<std::string> inputs,
                         std::vector<OpAttribute> attributes = {}) = 0;
  /// A parameter of the layer, by its ParamSpec::suffix, as in files. Counters are no values.
  virtual std::string param(const std::string& suffix) = 0;
  /// Numbers that the file holds; an empty shape makes a scalar.
  virtual std::string floats(std::vector<std::int64_t> shape, std::vector<float> values) = 0;
  virtual std::string doubles(std::vector<std::int64_t> shape, std::vector<double> values) = 0;
  virtual std::string integers(std::vector<std::int64_t> values) = 0;
  /// Returns the value of `yes` or `no`, each of which writes the operations of its branch.
  /// `condition` is a scalar.
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
