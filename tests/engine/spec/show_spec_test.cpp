// config show, the diff of two configs, the schema and the reference page.
#include <doctest/doctest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/engine/spec/small_catalog.h"

using namespace dpt;
using namespace dpt::testing;
using Texts = std::vector<std::string>;

TEST_CASE("a shown config reads back to an equal spec") {
  const Texts configs = {
      kGoodConfig,
      changed("name: small", "name: \"yes: \\\"no\\\" # \\\\ \\u00e4\""),
      changed("root: images", "root: images\n  classes: [\"\\a\\t\\n\\x7f\", '\"']"),
      changed("lr: 0.2", "lr: 0.1000000000000000055511151231257827, momentum: 1e-300"),
      changed("root: images", "root: $${x}/$y"),
      changed("root: images", "root: images\n  classes: [\"1\", \"true\", no, ~x, \"\", 'null']"),
      changed("kernel_size: 3", "kernel_size: [3, 5], dilations: [1, 2]"),
      changed("shards: auto", "shards: 8, early_stopping: {patience: 3}"),
      changed("eval: [{type: Normalize, mean: [0.5], std: [0.25]}]", "eval: []"),
      changed("seed: 7", "seed: 7\ndevice_weights: [9, 0.5]"),
  };
  for (const std::string& config : configs) {
    const TrainSpec spec = good_spec(config);
    const std::string text = shown(spec);
    const TrainSpec again = load_spec_text(small_catalog(), text, "/elsewhere/shown.yaml");
    CHECK(shown(again) == text);
    CHECK(again.name == spec.name);
    CHECK(again.optimizer.as<SmallSgd>().lr == spec.optimizer.as<SmallSgd>().lr);
    CHECK(again.optimizer.as<SmallSgd>().momentum == spec.optimizer.as<SmallSgd>().momentum);
    CHECK(again.data.dataset.as<SmallImages>().root == spec.data.dataset.as<SmallImages>().root);
    CHECK(again.data.dataset.as<SmallImages>().classes ==
          spec.data.dataset.as<SmallImages>().classes);
    CHECK(again.model.layers[0].op.as<SmallConv>().kernel_size ==
          spec.model.layers[0].op.as<SmallConv>().kernel_size);
    CHECK(again.model.layers[2].from == spec.model.layers[2].from);
    CHECK(again.model.layers[1].name == spec.model.layers[1].name);
    CHECK(again.train.early_stopping.has_value() == spec.train.early_stopping.has_value());
    CHECK(again.devices == spec.devices);
    CHECK(again.device_weights == spec.device_weights);
    // With comments it is the same config.
    CHECK(shown(load_spec_text(small_catalog(), show_spec(small_catalog(), spec, true),
                               "/elsewhere/shown.yaml")) == text);
  }
}

TEST_CASE("config show --origins says where each value came from") {
  const TrainSpec spec = good_spec(kGoodConfig, {"train.epochs=3"});
  // The comments' column follows the longest line, which holds a path: the spaces do not count.
  std::string text = show_spec(small_catalog(), spec, true);
  for (std::size_t at; (at = text.find("  #")) != std::string::npos;) text.erase(at, 1);
  CHECK(text.find("  epochs: 3 # command line\n") != std::string::npos);
  CHECK(text.find("  batch_size: 64 # test.yaml:7\n") != std::string::npos);
  CHECK(text.find("  shuffle: true # default\n") != std::string::npos);
  CHECK(text.find("      out_channels: 20 # test.yaml:15\n") != std::string::npos);
}

TEST_CASE("diff_specs names what differs and leaves out what may") {
  const std::string before = shown(good_spec(kGoodConfig));
  const std::string after =
      shown(good_spec(kGoodConfig, {"train.epochs=3", "log.every=1", "model.layers.conv1.stride=2",
                                    "model.input=[3, 28, 28]", "optimizer={type: Adam, lr: 0.2}"}));
  CHECK(diff_specs(before, before, {}).empty());
  CHECK(diff_specs(before, after, {"train.epochs", "log"}) ==
        Texts{"model.input: [1, 28, 28] -> [3, 28, 28]", "model.layers.conv1.stride: 1 -> 2",
              "optimizer.type: SGD -> Adam", "optimizer.momentum: 0 -> (absent)",
              "optimizer.nesterov: false -> (absent)"});
  CHECK(diff_specs(after, before, {"train", "log", "model"}) ==
        Texts{"optimizer.type: Adam -> SGD", "optimizer.momentum: (absent) -> 0",
              "optimizer.nesterov: (absent) -> false"});
  CHECK_THROWS_AS(diff_specs("a: [", "a: 1", {}), Error);
}

TEST_CASE("the schema is strict JSON Schema 2020-12") {
  const auto schema = nlohmann::json::parse(config_schema(small_catalog()));
  CHECK(schema["$schema"] == "https://json-schema.org/draft/2020-12/schema");
  CHECK(schema["else"]["additionalProperties"] == false);
  CHECK(schema["else"]["required"] == nlohmann::json({"data", "model", "optimizer", "train"}));
  CHECK_FALSE(schema["then"].contains("required"));
  CHECK(schema["then"]["properties"].contains("extends"));
  CHECK_FALSE(schema["else"]["properties"].contains("extends"));
  const auto& conv = schema["$defs"]["layer.Conv2d"];
  CHECK(conv["additionalProperties"] == false);
  CHECK(conv["required"] == nlohmann::json({"out_channels", "kernel_size"}));
  CHECK(conv["properties"]["type"]["const"] == "Conv2d");
  CHECK(conv["properties"]["name"]["type"] == "string");
  CHECK(conv["properties"]["out_channels"]["minimum"] == 1);
  CHECK(conv["properties"]["kernel_size"]["anyOf"][1]["minItems"] == 2);
  CHECK(conv["properties"]["bias"]["default"] == true);
  CHECK(conv["properties"]["bias"]["description"] == "Add a learnable bias.");
  CHECK(schema["$defs"]["optimizer.SGD"]["properties"]["lr"]["exclusiveMinimum"] == 0);
  const auto& device_weights = schema["else"]["properties"]["device_weights"];
  CHECK(device_weights["default"] == "auto");
  CHECK(device_weights["anyOf"][0]["const"] == "auto");
  CHECK(device_weights["anyOf"][1]["items"]["exclusiveMinimum"] == 0);
  const auto& images = schema["$defs"]["data.images"];
  CHECK(images["properties"].contains("root"));
  CHECK(images["properties"].contains("batch_size"));
  CHECK(images["required"] == nlohmann::json({"batch_size"}));
  CHECK_FALSE(schema["$defs"]["partial.data.images"].contains("required"));
}

TEST_CASE("the reference page has every kind and field") {
  const std::string page = config_reference(small_catalog());
  for (const char* part :
       {"### `dataset: images`", "#### `type: Conv2d`", "### `type: SGD`",
        "| `momentum` | a number from 0 to 1 | `0` | Momentum. |",
        "| `lr` | a number above 0 | required | Learning rate. |",
        "| `shards` | auto or an integer from 1 to 65536 | `auto` |", "## train",
        "| `device_weights` | auto or a list of at least 1 number, each above 0 | "
        "`auto` |",
        "### early_stopping", "| `extends` | a path |"}) {
    CHECK_MESSAGE(page.find(part) != std::string::npos, part);
  }
}
