#include <algorithm>
#include <set>

#include "tests/support/layer_case.h"

namespace dpt::testing {
namespace {

TEST_CASE("the registry knows every layer once, with documentation") {
  std::set<std::string> names;
  for (const LayerKind& kind : layer_kinds()) {
    CHECK(names.insert(kind.table->name).second);
    CHECK_FALSE(kind.table->doc.empty());
    for (const Field& field : kind.table->fields) CHECK_FALSE(field.doc.empty());
    // Checks the minimum length in the schema of `from`. Layers with required options have one
    // input.
    const auto& fields = kind.table->fields;
    const bool has_defaults = std::none_of(fields.begin(), fields.end(),
                                           [](const Field& field) { return field.is_required; });
    const std::int64_t least =
        has_defaults ? layer(kind.table->name)->input_count().least : std::int64_t{1};
    CHECK(kind.table->least_inputs == least);
  }
  for (const char* name : {"Conv2d",      "ConvTranspose2d",
                           "Linear",      "ReLU",
                           "Add",         "MaxPool2d",
                           "AvgPool2d",   "AdaptiveAvgPool2d",
                           "Flatten",     "Identity",
                           "Dropout",     "Dropout2d",
                           "LeakyReLU",   "ReLU6",
                           "GELU",        "SiLU",
                           "Sigmoid",     "Tanh",
                           "Softplus",    "Hardswish",
                           "Hardsigmoid", "Concat",
                           "Multiply",    "ZeroPad2d",
                           "Upsample",    "PadChannels",
                           "GroupNorm",   "LayerNorm",
                           "LayerNorm2d", "PReLU",
                           "LayerScale",  "StochasticDepth"}) {
    CAPTURE(name);
    CHECK(names.count(name) == 1);
  }
  CHECK(layer_kinds().table().what == "layer");
  CHECK(layer_kinds().table().alternatives.size() == names.size());
}

TEST_CASE("names of other systems lead to ours") {
  const auto hint = [](const std::string& name) {
    for (const auto& [theirs, ours] : layer_kinds().table().hints) {
      if (theirs == name) return ours;
    }
    return std::string();
  };
  CHECK(hint("Conv2D") == "Conv2d");
  CHECK(hint("Conv2DTranspose") == "ConvTranspose2d");
  CHECK(hint("Dense") == "Linear");
  CHECK(hint("InnerProduct") == "Linear");
  CHECK(hint("FullyConnected") == "Linear");
  CHECK(hint("MaxPooling2D") == "MaxPool2d");
  CHECK(hint("Eltwise") == "Add");
  CHECK(hint("LogSoftmax").starts_with("no layer at all: loss: {type: cross_entropy}"));
  CHECK(hint("Pooling") == "MaxPool2d or AvgPool2d");
  CHECK(hint("GlobalAveragePooling2D") == "AdaptiveAvgPool2d");
  for (const auto& [theirs, ours] : layer_kinds().table().hints) {
    CHECK(std::none_of(layer_kinds().begin(), layer_kinds().end(),
                       [&](const LayerKind& kind) { return kind.table->name == theirs; }));
  }
}

TEST_CASE("make_layer gives the asked layer") {
  CHECK(layer("Flatten")->is_view());
  CHECK(layer("ReLU")->is_in_place());
  CHECK(infer(*layer("Linear", {{"out_features", integer(3)}}), vector_of(2)).text() == "3");
}

}  // namespace
}  // namespace dpt::testing
