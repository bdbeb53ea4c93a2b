// `config show`, the diff of two configs, the schema and the reference page.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "engine/config/flat_values.h"
#include "engine/config/read_spec.h"
#include "engine/config/reference.h"
#include "engine/config/schema.h"
#include "engine/config/show_spec.h"
#include "tests/engine/config/resolved_schema.h"
#include "tests/engine/config/small_catalog.h"

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
      changed("root: images", "root: images\n  classes: [\"NULL\", \"Null\", YES, Off]"),
      changed("kernel_size: 3", "kernel_size: [3, 5], dilations: [1, 2]"),
      changed("shards: auto", "shards: 8, early_stopping: {patience: 3}"),
      changed("eval: [{type: Normalize, mean: [0.5], std: [0.25]}]", "eval: []"),
      changed("seed: 7", "seed: 7\ndevice_weights: [9, 0.5]"),
      changed("seed: 7",
              "seed: 7\nweights: {file: '$${x}', map: {'': b., \"a: \\\"\": '{', '1': 'no'}, "
              "expect_missing: '*.bias', head: by_class_name, use: raw}"),
      changed("shards: auto", "shards: 8, freeze: [conv1.*, '*.bias']"),
      changed("shards: auto", "shards: 8, freeze: {params: a.*, except: [fc.*, '?']}"),
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
    CHECK(again.train.freeze.params == spec.train.freeze.params);
    CHECK(again.train.freeze.except == spec.train.freeze.except);
    CHECK(again.devices == spec.devices);
    CHECK(again.device_weights == spec.device_weights);
    CHECK(again.weights.has_value() == spec.weights.has_value());
    if (again.weights) {
      CHECK(again.weights->file == spec.weights->file);
      CHECK(again.weights->map == spec.weights->map);
      CHECK(again.weights->map == TextPairs{{"", "b."}, {"a: \"", "{"}, {"1", "no"}});
      CHECK(again.weights->expect_missing == Texts{"*.bias"});
      CHECK(again.weights->head == HeadRows::by_class_name);
      CHECK(again.weights->use == WeightsUse::raw);
    }
    // The text with comments reads back as the same config.
    CHECK(shown(load_spec_text(small_catalog(), show_spec(small_catalog(), spec, true),
                               "/elsewhere/shown.yaml")) == text);
  }
}

TEST_CASE("train.freeze is a list, as it always was, or a mapping") {
  const auto frozen = [](const std::string& freeze) {
    return good_spec(changed("shards: auto", "shards: 8, freeze: " + freeze)).train.freeze;
  };
  CHECK(frozen("[a.*, b]").params == Texts{"a.*", "b"});
  CHECK(frozen("a.*").params == Texts{"a.*"});
  CHECK(frozen("[]").params.empty());
  const FreezeSpec both = frozen("{params: [a.*], except: b.*}");
  CHECK(both.params == Texts{"a.*"});
  CHECK(both.except == Texts{"b.*"});
  CHECK(frozen("{except: [fc.*]}").params.empty());
  // A stored config has a list where an older dpt expects one.
  const auto line_of = [](const std::string& freeze) {
    const std::string text = shown(good_spec(changed("shards: auto", "freeze: " + freeze)));
    const std::size_t at = text.find("  freeze:");
    return text.substr(at, text.find("  ema", at) - at);
  };
  CHECK(line_of("[a.*]") == "  freeze: [\"a.*\"]\n");
  CHECK(line_of("{params: a.*}") == "  freeze: [\"a.*\"]\n");
  CHECK(line_of("{except: [fc.*]}") == "  freeze:\n    except: [\"fc.*\"]\n");
}

TEST_CASE("config show --origins says where each value came from") {
  const TrainSpec spec = good_spec(kGoodConfig, {"train.epochs=3"});
  // The column of the comments depends on the longest line, which holds a path, so the test ignores
  // the spaces before them.
  std::string text = show_spec(small_catalog(), spec, true);
  for (std::size_t at; (at = text.find("  #")) != std::string::npos;) text.erase(at, 1);
  CHECK(text.find("  epochs: 3 # command line\n") != std::string::npos);
  CHECK(text.find("  batch_size: 64 # test.yaml:7\n") != std::string::npos);
  CHECK(text.find("  shuffle: true # default\n") != std::string::npos);
  CHECK(text.find("      out_channels: 20 # test.yaml:15\n") != std::string::npos);
}

TEST_CASE("config show --origins: the comments stand in one column, two spaces after the lines") {
  // Returns the column where the comment of each line begins, and the length of the text before it.
  const auto columns = [](const std::string& root) {
    std::vector<std::pair<std::size_t, std::size_t>> all;
    std::istringstream text(
        show_spec(small_catalog(), good_spec(changed("root: images", "root: " + root)), true));
    for (std::string line; std::getline(text, line);) {
      const std::size_t at = line.find("# ");
      if (at == std::string::npos) continue;
      all.emplace_back(at, line.find_last_not_of(' ', at - 1) + 1);
    }
    return all;
  };
  const auto longest = [](const auto& all) {
    std::size_t length = 0;
    for (const auto& [at, end] : all) length = std::max(length, end);
    return length;
  };
  for (const auto& [at, end] : columns("/a")) {
    CHECK(at == std::string("    start_factor: 0.3333333333333333  ").size());
  }
  // Lines of up to sixty characters determine the column; longer ones do not.
  const std::string sixty = "/" + std::string(60 - 9, 'x');
  const auto at_most = columns(sixty), more = columns(sixty + "yyy");
  CHECK(longest(at_most) == 60);
  CHECK(longest(more) == 63);
  for (const auto& [at, end] : at_most) CHECK(at == 62);
  for (const auto& [at, end] : more) CHECK(at == (end == 63 ? 65 : 62));
}

TEST_CASE("diff_specs names the differences, except those that are allowed") {
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
  const auto schema = resolved_schema(small_catalog());
  CHECK(schema["$schema"] == "https://json-schema.org/draft/2020-12/schema");
  CHECK(schema["$id"] == "urn:dpt:config:1");
  CHECK(schema["additionalProperties"] == false);
  CHECK(schema["properties"].contains("extends"));
  CHECK_FALSE(schema.contains("required"));
  CHECK_FALSE(schema.contains("then"));
  CHECK(schema["else"]["required"] == nlohmann::json({"data", "model", "optimizer", "train"}));
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
  const auto& device_weights = schema["properties"]["device_weights"];
  CHECK(device_weights["default"] == "auto");
  CHECK(device_weights["anyOf"][0]["const"] == "auto");
  CHECK(device_weights["anyOf"][1]["items"]["exclusiveMinimum"] == 0);
  CHECK(device_weights["anyOf"][1]["minItems"] == 1);
  CHECK(device_weights["anyOf"][1]["maxItems"] == 65536);
  const auto& images = schema["$defs"]["data.images"];
  CHECK(images["properties"].contains("root"));
  CHECK(images["properties"].contains("batch_size"));
  CHECK_FALSE(images.contains("required"));
  CHECK(schema["else"]["properties"]["data"]["required"] ==
        nlohmann::json({"dataset", "batch_size"}));
}

TEST_CASE("the schema of each sort of field") {
  using nlohmann::json;
  const json schema = resolved_schema(small_catalog());
  // Removes the description.
  const auto bare = [](json field) {
    field.erase("description");
    return field;
  };
  const json& full = schema["properties"];
  const json& required = schema["else"]["properties"];
  const json& train = full["train"]["properties"];
  CHECK(bare(train["epochs"]) ==
        json::parse(R"({"type": "integer", "minimum": 1, "maximum": 1000000})"));
  CHECK(bare(train["shards"]) == json::parse(R"({"default": "auto", "anyOf": [
      {"enum": ["auto", 0]}, {"type": "integer", "minimum": 1, "maximum": 65536}]})"));
  CHECK(bare(train["grad_clip_norm"]) == json::parse(R"({"default": null, "anyOf": [
      {"type": "number", "minimum": 1e-30, "maximum": 1e38}, {"type": "null"}]})"));
  CHECK(bare(train["on_divergence"]["properties"]["lr_factor"]) ==
        json::parse(R"({"default": 0.5, "type": "number", "exclusiveMinimum": 0})"));
  CHECK(bare(train["precision"]) ==
        json::parse(R"({"default": "fp32", "type": "string", "enum": ["fp32", "tf32", "bf16"]})"));
  CHECK(bare(train["autotune"]) == json::parse(R"({"default": true, "type": "boolean"})"));
  CHECK(bare(train["stall_timeout"]) ==
        json::parse(R"({"default": 600, "type": "number", "minimum": 0.01, "maximum": 31536000})"));
  CHECK(required["train"]["required"] == json({"epochs"}));
  CHECK_FALSE(full["train"].contains("required"));
  const json& early = train["early_stopping"];
  CHECK_FALSE(early.contains("default"));
  CHECK(early["anyOf"][0]["properties"]["patience"]["default"] == 5);
  CHECK(early["anyOf"][0]["additionalProperties"] == false);
  CHECK(early["anyOf"][1] == json({{"type", "null"}}));
  CHECK_FALSE(early["anyOf"][0]["properties"]["mode"].contains(
      "default"));  // its default follows `monitor`
  CHECK(early["anyOf"][0]["properties"]["monitor"]["default"] == "val/accuracy");

  CHECK(bare(full["devices"]) == json::parse(R"({"default": ["auto"], "anyOf": [{"type": "string"},
      {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 65536}]})"));
  CHECK(bare(full["seed"]) == json::parse(R"({"default": 1, "type": "integer", "minimum": 0})"));
  CHECK(bare(full["name"]) == json::parse(R"({"type": "string"})"));
  const json& model = full["model"]["else"]["properties"];
  CHECK(bare(full["model"]["properties"]["input"]) ==
        json::parse(R"({"type": "array", "minItems": 3, "maxItems": 3,
      "items": {"type": "integer", "minimum": 1, "maximum": 65536}})"));
  CHECK(model["layers"]["type"] == "array");
  CHECK(model["layers"]["minItems"] == 1);
  const json& layer = schema["$defs"]["layer"];
  CHECK(layer["properties"]["type"]["enum"] ==
        json({"Conv2d", "ReLU", "Flatten", "Linear", "Add", "Sequential", "Residual"}));
  CHECK(layer["required"] == json::array({"type"}));
  REQUIRE(layer["allOf"].size() == 7);
  CHECK(layer["allOf"][1] == json::parse(R"({"if": {"properties": {"type": {"const": "ReLU"}},
      "required": ["type"]}, "then": {"$ref": "#/$defs/layer.ReLU"}})"));

  // If the kind of a schedule is omitted, the default kind is used.
  const json& schedule = required["lr_schedule"];
  CHECK_FALSE(schedule.contains("required"));
  CHECK(schedule["if"] == json::parse(R"({"not": {"required": ["type"]}})"));
  CHECK(schedule["then"] == json::parse(R"({"$ref": "#/$defs/lr_schedule.constant"})"));

  const json& conv = schema["$defs"]["layer.Conv2d"]["properties"];
  CHECK(bare(conv["kernel_size"]) == json::parse(R"({"anyOf": [
      {"type": "integer", "minimum": 1, "maximum": 1024},
      {"type": "array", "items": {"type": "integer", "minimum": 1, "maximum": 1024},
       "minItems": 2, "maxItems": 2}]})"));
  CHECK(conv["stride"]["default"] == 1);
  CHECK(bare(conv["dilations"]) == json::parse(R"({"default": [], "type": "array",
      "items": {"type": "integer", "minimum": 1, "maximum": 9}})"));
  const json& images = schema["$defs"]["data.images"]["properties"];
  CHECK(bare(images["root"]) == json::parse(R"({"default": "images", "type": "string"})"));
  CHECK(images["shuffle"]["default"] == true);
  const json& transforms = images["transforms"]["properties"]["train"];
  CHECK(transforms["type"] == "array");
  CHECK(transforms["items"]["$ref"] == "#/$defs/transform");
  CHECK(schema["$defs"]["transform"]["allOf"][0]["then"]["$ref"] == "#/$defs/transform.Normalize");

  // A config that extends another may be incomplete, except for the items of its lists.
  CHECK(schema["if"] == json::parse(R"({"required": ["extends"]})"));
  const json& data = full["data"];
  CHECK_FALSE(data.contains("required"));
  CHECK(data["properties"]["batch_size"]["minimum"] == 1);
  CHECK(data["if"] == json::parse(R"({"required": ["dataset"]})"));
  CHECK(data["then"]["allOf"][0] == json::parse(R"({"if": {"properties": {"dataset":
      {"const": "images"}}}, "then": {"$ref": "#/$defs/data.images"}})"));
  CHECK(data["else"]["propertyNames"]["enum"].size() == 16);
  CHECK(full["lr_schedule"]["if"] == json::parse(R"({"required": ["type"]})"));
  CHECK(full["model"]["else"]["properties"]["layers"]["items"] ==
        json::parse(R"({"$ref": "#/$defs/layer"})"));
}

TEST_CASE("the schema has the fields that several kinds share once") {
  const auto schema = nlohmann::json::parse(config_schema(small_catalog()));
  const auto& defs = schema["$defs"];
  CHECK(defs["layer.Conv2d"]["properties"]["from"]["$ref"] == "#/$defs/layer.from");
  CHECK(defs["layer.Linear"]["properties"]["from"]["$ref"] == "#/$defs/layer.from");
  CHECK(defs["layer.from"]["description"].is_string());
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
