// Layers and whole models built in code, as the config reader would build them from YAML.
#pragma once

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/config/train_spec.h"
#include "engine/layers/layer.h"

namespace dpt::testing {

using Options = std::vector<std::pair<std::string, PlainValue>>;

/// Returns an integer field. (A plain 3 would be ambiguous among the field types.)
inline PlainValue integer(std::int64_t value) {
  return value;
}
/// Returns a string field; a literal would become a bool.
inline PlainValue word(const std::string& value) {
  return value;
}
/// Returns a Size2 field with equal sides.
inline PlainValue square(std::int64_t side) {
  return Size2{side, side};
}

/// Returns `{type: TYPE, name: value, ...}` read into the options struct of TYPE.
inline Variant variant(const std::string& type, const Options& options) {
  for (const ObjectTable* table : layer_kinds().table().alternatives) {
    if (table->name != type) continue;
    const std::shared_ptr<void> made = table->make();
    for (const auto& [name, value] : options) {
      bool known = false;
      for (const Field& field : table->fields) {
        if (field.name != name) continue;
        field.set(made.get(), value);
        known = true;
      }
      REQUIRE_MESSAGE(known, type, " has no field ", name);
    }
    Variant result;
    result.type = type;
    result.table = table;
    result.options = made;
    return result;
  }
  FAIL("no layer type ", type);
  return {};
}

inline std::unique_ptr<Layer> layer(const std::string& type, const Options& options = {}) {
  return make_layer(variant(type, options));
}

/// Builds the model of a config "net.yaml" whose layers stand one per line, from line 10 on, at
/// column 7.
class ModelSpecBuilder {
 public:
  explicit ModelSpecBuilder(std::vector<std::int64_t> input) {
    spec_.name = "net";
    spec_.file = "net.yaml";
    spec_.data.batch_size = 256;
    spec_.model.input = std::move(input);
    spec_.model.where = {"net.yaml", 7, 3};
  }
  /// Appends a layer. An empty name becomes the index, as in nn.Sequential.
  ModelSpecBuilder& add(const std::string& type, const Options& options = {},
                        const std::string& name = "", std::vector<std::string> from = {}) {
    std::vector<LayerSpec>& layers = spec_.model.layers;
    LayerSpec made;
    made.op = variant(type, options);
    made.name = name.empty() ? std::to_string(layers.size()) : name;
    made.from = std::move(from);
    made.where = {"net.yaml", 10 + static_cast<int>(layers.size()), 7};
    layers.push_back(std::move(made));
    return *this;
  }
  /// Makes the last layer use the weights of `owner`.
  ModelSpecBuilder& shares(const std::string& owner) {
    spec_.model.layers.back().share_weights = owner;
    return *this;
  }
  ModelSpecBuilder& conv(const std::string& name, std::int64_t channels, std::int64_t kernel) {
    return add("Conv2d", {{"out_channels", integer(channels)}, {"kernel_size", square(kernel)}},
               name);
  }
  ModelSpecBuilder& linear(const std::string& name, std::int64_t features) {
    return add("Linear", {{"out_features", integer(features)}}, name);
  }
  const TrainSpec& spec() const { return spec_; }
  TrainSpec& spec() { return spec_; }

 private:
  TrainSpec spec_;
};

/// Returns the network of configs/lenet-fashion-mnist.yaml.
inline TrainSpec lenet_spec() {
  const Options pool = {{"kernel_size", square(2)}, {"stride", square(2)}};
  return ModelSpecBuilder({1, 28, 28})
      .conv("conv1", 20, 3)
      .add("ReLU")
      .add("AvgPool2d", pool)
      .conv("conv2", 50, 5)
      .add("ReLU")
      .add("AvgPool2d", pool)
      .add("Flatten")
      .linear("fc1", 128)
      .add("ReLU")
      .linear("fc2", 10)
      .spec();
}

/// Returns the message of the Error that `call` throws, or an empty string if it throws none.
template <class Call>
std::string error_text(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    CHECK(error.kind() == ErrorKind::usage);
    return error.what();
  }
  return {};
}

}  // namespace dpt::testing
