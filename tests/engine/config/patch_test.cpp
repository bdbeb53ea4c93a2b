// Patches of named layers, networks of the zoo, and overrides of the result.

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "engine/config/issue.h"
#include "engine/config/read_spec.h"
#include "engine/config/reference.h"
#include "engine/config/show_spec.h"
#include "engine/config/stored_spec.h"
#include "tests/cli/program.h"
#include "tests/engine/config/resolved_schema.h"
#include "tests/engine/config/small_catalog.h"

using namespace dpt;
using namespace dpt::testing;
using Texts = std::vector<std::string>;

namespace {

const std::string kNetRest =
    "data: {dataset: synthetic, batch_size: 8}\noptimizer: {type: Adam, lr: 1e-3}\n"
    "train: {epochs: 1}\n";

/// Returns a config whose model entries start at line 5, indented by two.
std::string net_config(const std::string& model) {
  return kNetRest + "model:\n  input: [3, 8, 8]\n" + model;
}

const std::string kNetLayers = R"(  layers:
    - {type: Conv2d, name: conv1, out_channels: 4, kernel_size: 3}
    - {type: ReLU, name: relu1}
    - type: Residual
      name: layer1
      repeat: 3
      from: conv1
      layers: [{type: Conv2d, name: conv1, out_channels: 4, kernel_size: 3}, {type: ReLU}]
    - type: Sequential
      name: layer2
      layers:
        - {type: Residual, repeat: 2, layers: [{type: ReLU, name: r}], shortcut: [{type: ReLU}]}
        - {type: ReLU, name: last}
    - {type: Flatten}
    - {type: Linear, name: fc, out_features: 10}
)";
constexpr int kPatchLine = 21;  // line of `patch:` after these layers

std::string patched_net(const std::string& entries) {
  return net_config(kNetLayers + "  patch:\n" + entries);
}

/// Returns "name type" of each layer, with its output channels and its inputs if it names any.
Texts net_lines(const TrainSpec& spec) {
  Texts lines;
  for (const LayerSpec& layer : spec.model.layers) {
    lines.push_back(layer.name + " " + layer.op.type);
    if (layer.op.type == "Conv2d") {
      lines.back() += fmt::format(" {}", layer.op.as<SmallConv>().out_channels);
    }
    if (!layer.from.empty()) lines.back() += fmt::format(" < {}", fmt::join(layer.from, ", "));
  }
  return lines;
}
Texts net_lines(const std::string& text, const Texts& overrides = {}) {
  return net_lines(good_spec(text, overrides));
}

/// Returns `all` with the `count` lines from `at` on replaced by `now`.
Texts with_lines(Texts all, std::size_t at, std::size_t count, const Texts& now) {
  const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
  all.insert(all.erase(begin, begin + static_cast<std::ptrdiff_t>(count)), now.begin(), now.end());
  return all;
}

const Texts kPlainNet = {"conv1 Conv2d 4",
                         "relu1 ReLU",
                         "layer1.0.conv1 Conv2d 4 < conv1",
                         "layer1.0.1 ReLU",
                         "layer1.0.add Add < layer1.0.1, conv1",
                         "layer1.1.conv1 Conv2d 4",
                         "layer1.1.1 ReLU",
                         "layer1.1.add Add < layer1.1.1, layer1.0.add",
                         "layer1.2.conv1 Conv2d 4",
                         "layer1.2.1 ReLU",
                         "layer1.2.add Add < layer1.2.1, layer1.1.add",
                         "layer2.0.r ReLU",
                         "layer2.0.1 ReLU < layer1.2.add",
                         "layer2.0.add Add < layer2.0.r, layer2.0.1",
                         "layer2.1.r ReLU",
                         "layer2.1.1 ReLU < layer2.0.add",
                         "layer2.1.add Add < layer2.1.r, layer2.1.1",
                         "layer2.last ReLU",
                         "4 Flatten",
                         "fc Linear"};

}  // namespace

TEST_CASE("a patch changes, inserts and deletes layers by name") {
  CHECK(net_lines(net_config(kNetLayers)) == kPlainNet);
  CHECK(net_lines(patched_net("    - {change: conv1, out_channels: 32}\n")) ==
        with_lines(kPlainNet, 0, 1, {"conv1 Conv2d 32"}));
  const TrainSpec spec = good_spec(patched_net("    - {change: conv1, out_channels: 32}\n"));
  CHECK(spec.model.layers[0].op.as<SmallConv>().kernel_size == Size2{3, 3});
  CHECK(net_lines(patched_net(
            "    - {insert_after: relu1, layers: [{type: ReLU}, {type: ReLU, name: a}]}\n")) ==
        with_lines(with_lines(kPlainNet, 18, 1, {"6 Flatten"}), 2, 0, {"2 ReLU", "a ReLU"}));
  CHECK(net_lines(
            patched_net("    - {insert_before: conv1, layers: [{type: ReLU, name: first}]}\n")) ==
        with_lines(with_lines(kPlainNet, 18, 1, {"5 Flatten"}), 0, 0, {"first ReLU"}));
  CHECK(net_lines(patched_net("    - {delete: relu1}\n")) ==
        with_lines(with_lines(kPlainNet, 18, 1, {"3 Flatten"}), 1, 2, {"layer1.0.conv1 Conv2d 4"}));
  // Entries are applied in order; an inserted layer can be changed.
  CHECK(net_lines(patched_net("    - {insert_after: relu1, layers: [{type: ReLU, name: a}]}\n"
                              "    - {delete: relu1}\n"
                              "    - {change: a, name: b}\n")) ==
        with_lines(kPlainNet, 1, 1, {"b ReLU"}));
  // Unnamed layers are addressed by their index; a change of type keeps the name and the inputs.
  CHECK(net_lines(patched_net("    - {change: '4', type: ReLU}\n")) ==
        with_lines(kPlainNet, 18, 1, {"4 ReLU"}));
  CHECK(net_lines(patched_net(
            "    - {change: relu1, type: Conv2d, out_channels: 7, kernel_size: 1}\n")) ==
        with_lines(kPlainNet, 1, 1, {"relu1 Conv2d 7"}));
  CHECK(net_lines(
            patched_net("    - {change: layer1, type: Conv2d, out_channels: 7, kernel_size: 1}\n"
                        "    - {delete: layer2}\n")) ==
        Texts{"conv1 Conv2d 4", "relu1 ReLU", "layer1 Conv2d 7 < conv1", "3 Flatten", "fc Linear"});
  CHECK(net_lines(patched_net("    - {change: relu1, from: input}\n")) ==
        with_lines(kPlainNet, 1, 1, {"relu1 ReLU < input"}));
  CHECK(net_lines(net_config(kNetLayers + "  patch: []\n")) == kPlainNet);
}

TEST_CASE("a patch reaches into blocks, and into one copy of a repeated block") {
  CHECK(net_lines(patched_net("    - {change: layer1.1.conv1, out_channels: 9}\n")) ==
        with_lines(kPlainNet, 5, 1, {"layer1.1.conv1 Conv2d 9"}));
  CHECK(net_lines(patched_net("    - {change: layer1.0.conv1, out_channels: 9}\n")) ==
        with_lines(kPlainNet, 2, 1, {"layer1.0.conv1 Conv2d 9 < conv1"}));
  CHECK(net_lines(patched_net("    - {delete: layer2.1.1}\n")) ==
        with_lines(with_lines(kPlainNet, 16, 1, {"layer2.1.add Add < layer2.1.r, layer2.0.add"}),
                   15, 1, {}));
  CHECK(net_lines(patched_net(
            "    - {insert_after: layer2.0.r, layers: [{type: ReLU, name: s}]}\n"))[12] ==
        "layer2.0.s ReLU");
  CHECK(net_lines(patched_net("    - {delete: layer2.0}\n")) ==
        with_lines(with_lines(kPlainNet, 14, 3,
                              {"layer2.0.r ReLU", "layer2.0.1 ReLU < layer1.2.add",
                               "layer2.0.add Add < layer2.0.r, layer2.0.1"}),
                   11, 3, {}));
  // The block itself can be changed.
  CHECK(net_lines(patched_net("    - {change: layer1, repeat: 1}\n")) ==
        with_lines(with_lines(kPlainNet, 12, 1, {"layer2.0.1 ReLU < layer1.0.add"}), 5, 6, {}));
  CHECK(net_lines(patched_net("    - {change: layer2.last, name: end}\n"))[17] ==
        "layer2.end ReLU");
  // Naming a copy without changing it changes nothing.
  CHECK(net_lines(patched_net("    - {change: layer1.2, type: Residual}\n")) == kPlainNet);
  CHECK(net_lines(patched_net("    - {change: layer2.1, type: Residual}\n")) == kPlainNet);
}

TEST_CASE("an error in a patch is reported at its place") {
  const auto issue = [](const std::string& entry) {
    const Texts found = issues_of(patched_net("    - " + entry + "\n"));
    REQUIRE(found.size() >= 1);
    return found[0];
  };
  const std::string line = fmt::format("{}", kPatchLine + 1);
  CHECK(issue("{change: conv2, out_channels: 3}") ==
        line +
            ":16: there is no layer 'conv2', did you mean 'conv1'? Layers: conv1, relu1, "
            "layer1, layer2, 4, fc");
  CHECK(issue("{delete: layer1.1.conv}") ==
        line +
            ":16: there is no layer 'layer1.1.conv', did you mean 'layer1.1.conv1'? Layers: "
            "layer1.1.conv1, layer1.1.1");
  CHECK(issue("{delete: layer1.3.conv1}") ==
        line +
            ":16: there is no layer 'layer1.3.conv1'. Layers: layer1.0, "
            "layer1.1, layer1.2");
  CHECK(issue("{delete: layer2.2.r}") ==
        line +
            ":16: there is no layer 'layer2.2.r', did you mean 'layer2.0'? Layers: layer2.0, "
            "layer2.1, layer2.last");
  CHECK(issue("{remove: conv1}") ==
        line +
            ":7: expected one of change, insert_before, insert_after, delete in an entry of "
            "'patch', found none of them");
  CHECK(issue("{chang: conv1, stride: 2}") ==
        line +
            ":7: expected one of change, insert_before, insert_after, delete in an entry of "
            "'patch', found none of them; did you mean 'change'?");
  CHECK(issue("{change: conv1, delete: relu1}") ==
        line +
            ":7: expected one of change, insert_before, insert_after, delete in an entry of "
            "'patch', found change, delete");
  CHECK(issue("conv1") == line +
                              ":7: expected one of change, insert_before, insert_after, delete in "
                              "an entry of 'patch', found 'conv1'");
  CHECK(issue("{change: [conv1], stride: 2}") ==
        line + ":16: expected the name of a layer, found a list of 1");
  CHECK(issue("{change: 4, type: ReLU}").starts_with(line + ":16: expected the name of a layer, "));
  CHECK(issue("{change: conv1}") ==
        line + ":7: expected the fields to change in layer 'conv1', found none");
  CHECK(issue("{delete: conv1, stride: 2}") ==
        line + ":23: unknown key 'stride' next to 'delete'. Known keys: delete");
  CHECK(issue("{insert_after: conv1, layer: []}") ==
        line + ":29: unknown key 'layer' next to 'insert_after'. Known keys: insert_after, layers");
  CHECK(issue("{insert_after: conv1}") ==
        line +
            ":7: expected a list of at least 1 layer in 'layers' of 'insert_after', found no "
            "such key");
  CHECK(issue("{insert_after: conv1, layers: []}") ==
        line +
            ":37: expected a list of at least 1 layer in 'layers' of 'insert_after', found an "
            "empty list");
  CHECK(issue("{insert_after: conv1, layers: {type: ReLU}}") ==
        line +
            ":37: expected a list of at least 1 layer in 'layers' of 'insert_after', found a "
            "mapping");
  // The result of a patch is checked like a hand-written config.
  CHECK(issue("{change: conv1, out_channels: 0}") ==
        line + ":37: expected an integer from 1 to 65536, found 0");
  CHECK(
      issue("{change: conv1, strid: 2}")
          .starts_with(line + ":23: unknown key 'strid' in layer Conv2d, did you mean 'stride'?"));
  CHECK(issue("{insert_after: conv1, layers: [{type: ReLU, name: fc}]}")
            .find("expected a unique layer name, found 'fc'") != std::string::npos);
  CHECK(issue("{delete: conv1}").find("found 'conv1'") != std::string::npos);
  CHECK(issues_of(net_config(kNetLayers + "  patch: {change: conv1}\n")) ==
        Texts{fmt::format("{}:10: expected a list of changes in 'patch', found a mapping",
                          kPatchLine)});
  CHECK(issues_of(net_config("  patch: []\n")) ==
        Texts{"5:3: missing key 'layers' in model: The layers and blocks, in order."});
  CHECK(issues_of(net_config(kNetLayers + "  ptch: []\n"))[0].find("did you mean 'patch'?") !=
        std::string::npos);
}

TEST_CASE("patches of configs that extend one another add up; other layers drop them") {
  const TempDir folder;
  const auto write = [&](const char* name, const std::string& text) {
    write_file(folder.file(name), text);
    return folder.file(name);
  };
  write("base.yaml", net_config(kNetLayers));
  write("middle.yaml",
        "extends: base.yaml\nmodel: {patch: [{change: conv1, out_channels: 32}, {insert_after: "
        "conv1, layers: [{type: ReLU, name: new}]}]}\n");
  const std::string top =
      write("top.yaml",
            "extends: middle.yaml\nmodel:\n  patch:\n    - {delete: new}\n    - {change: "
            "layer1.2.conv1, out_channels: 5}\n");
  const TrainSpec spec = load_spec(small_catalog(), top);
  CHECK(net_lines(spec) == with_lines(with_lines(kPlainNet, 0, 1, {"conv1 Conv2d 32"}), 8, 1,
                                      {"layer1.2.conv1 Conv2d 5"}));
  // Origins show the source of each value. As with `extends`, the shown config is the result.
  CHECK(spec.origins.at("model.layers.0.out_channels").file == folder.file("middle.yaml"));
  CHECK(spec.origins.at("model.layers.0.kernel_size").file == folder.file("base.yaml"));
  const std::string text = shown(spec);
  CHECK(text.find("patch") == std::string::npos);
  CHECK(net_lines(load_spec_text(small_catalog(), text, "x.yaml")) == net_lines(spec));
  // A patch on the command line is applied last.
  CHECK(net_lines(load_spec(small_catalog(), top, {"model.patch=[{delete: layer2.last}]"})) ==
        with_lines(net_lines(spec), 17, 1, {}));
  CHECK(net_lines(load_spec(small_catalog(), top, {"model.layers.conv1.out_channels=6"}))[0] ==
        "conv1 Conv2d 6");
  const std::string other =
      write("other.yaml",
            "extends: middle.yaml\nmodel: {layers: [{type: Linear, name: fc, out_features: "
            "3}]}\n");
  CHECK(net_lines(load_spec(small_catalog(), other)) == Texts{"fc Linear"});
}

TEST_CASE("a network of the zoo stands for its layers") {
  const std::string tiny = "  zoo: tiny\n  classes: 10\n";
  const Texts expected = {"conv1 Conv2d 4",
                          "layer1.0.conv1 Conv2d 4",
                          "layer1.0.1 ReLU",
                          "layer1.0.add Add < layer1.0.1, conv1",
                          "layer1.1.conv1 Conv2d 4",
                          "layer1.1.1 ReLU",
                          "layer1.1.add Add < layer1.1.1, layer1.0.add",
                          "2 Flatten",
                          "fc Linear"};
  const TrainSpec spec = good_spec(net_config(tiny));
  CHECK(net_lines(spec) == expected);
  CHECK(spec.model.layers[4].where.text() == "test.yaml:6:8");
  // A network can be shown as written, or as the layers it stands for.
  const std::string text = shown(spec);
  CHECK(text.find("model:\n  zoo: tiny\n  classes: 10\n  width: 4\n  input: [3, 8, 8]\nloss:") !=
        std::string::npos);
  CHECK(shown(load_spec_text(small_catalog(), text, "x.yaml")) == text);
  TrainSpec kept = spec;
  kept.model.zoo = {};
  CHECK(shown(kept).find("repeat: 2") != std::string::npos);
  CHECK(net_lines(load_spec_text(small_catalog(), shown(kept), "x.yaml")) == expected);
  CHECK(shown(load_spec_text(small_catalog(), shown(with_explicit_layers(spec)), "x.yaml")) ==
        shown(with_explicit_layers(spec)));
  CHECK(refused_changes(small_catalog(), shown(kept), "a", text).empty());

  // The network's options and its layers can be changed.
  CHECK(net_lines(net_config(tiny), {"model.width=8"})[1] == "layer1.0.conv1 Conv2d 8");
  CHECK(net_lines(net_config(tiny + "  patch: [{change: layer1.1.conv1, out_channels: 9}]\n")) ==
        with_lines(expected, 4, 1, {"layer1.1.conv1 Conv2d 9"}));
  CHECK(net_lines(net_config(tiny), {"model.layers.layer1.1.conv1.out_channels=9"}) ==
        with_lines(expected, 4, 1, {"layer1.1.conv1 Conv2d 9"}));
  CHECK(net_lines(net_config(tiny), {"model.layers.layer1.layers.conv1.out_channels=9"}) ==
        with_lines(with_lines(expected, 4, 1, {"layer1.1.conv1 Conv2d 9"}), 1, 1,
                   {"layer1.0.conv1 Conv2d 9"}));
  const std::string changed = shown(good_spec(net_config(tiny), {"model.layers.conv1.stride=2"}));
  CHECK(changed.find("zoo") == std::string::npos);
  CHECK(changed.find("stride: 2") != std::string::npos);
}

TEST_CASE("errors in a network of the zoo") {
  CHECK(issues_of(net_config("  zoo: tinny\n  classes: 10\n")) ==
        Texts{"6:8: unknown network 'tinny', did you mean 'tiny'? Known networks: tiny, tinier"});
  CHECK(issues_of(net_config("  zoo: tiny\n")) ==
        Texts{"5:3: missing key 'classes' in network tiny: Outputs."});
  CHECK(issues_of(net_config("  zoo: tiny\n  classes: 1\n")) ==
        Texts{"7:12: expected an integer from 2 to 100, found 1"});
  CHECK(issues_of(net_config("  zoo: tiny\n  classes: 2\n  wdth: 3\n")) ==
        Texts{"8:3: unknown key 'wdth' in network tiny, did you mean 'width'? Known keys: zoo, "
              "input, layers, patch, classes, width"});
  CHECK(issues_of(net_config("  classes: 2\n" + kNetLayers)) ==
        Texts{"6:3: unknown key 'classes' in model; it belongs to tiny, tinier. Known keys: zoo, "
              "input, layers, patch"});
  CHECK(issues_of(net_config("  zoo: tiny\n  classes: 2\n" + kNetLayers)) ==
        Texts{"6:8: expected 'zoo' or 'layers' in model, found both; to change layers of a network "
              "of the zoo, write 'patch'"});
  CHECK(issues_of(net_config("  zoo: tiny\n  classes: 2\n  patch: [{delete: conv2}]\n")) ==
        Texts{"8:20: there is no layer 'conv2', did you mean 'conv1'? Layers: conv1, layer1, 2, "
              "fc"});
  CHECK(issues_of(net_config("  zoo: [tiny]\n")) ==
        Texts{"6:8: expected the name of a network, found a list of 1. Known networks: tiny, "
              "tinier"});
}

TEST_CASE("a config that extends one with a network of the zoo") {
  const TempDir folder;
  write_file(folder.file("base.yaml"),
             net_config("  zoo: tiny\n  classes: 10\n  width: 7\n  patch: [{delete: conv1}]\n"));
  const auto extended = [&](const std::string& model) {
    write_file(folder.file("top.yaml"), "extends: base.yaml\nmodel: " + model + "\n");
    return net_lines(load_spec(small_catalog(), folder.file("top.yaml")));
  };
  CHECK(extended("{width: 2}")[0] == "layer1.0.conv1 Conv2d 2");
  CHECK(extended("{zoo: tiny, width: 2}")[0] == "layer1.0.conv1 Conv2d 2");
  // Another network, or a list of layers, replaces everything in the first one except its input.
  CHECK(extended("{zoo: tinier, classes: 3}")[0] == "conv1 Conv2d 4");
  CHECK(extended("{layers: [{type: ReLU}]}") == Texts{"0 ReLU"});
}

TEST_CASE("the schema knows the zoo and patches") {
  const auto schema = resolved_schema(small_catalog());
  const auto& model = schema["properties"]["model"];
  const auto& required = schema["else"]["properties"]["model"];
  CHECK(model["if"]["required"] == nlohmann::json({"zoo"}));
  CHECK(model["properties"]["zoo"]["enum"] == nlohmann::json({"tiny", "tinier"}));
  CHECK(model["then"]["allOf"][0]["then"]["$ref"] == "#/$defs/model.tiny");
  const auto& tiny = schema["$defs"]["model.tiny"];
  // The data set may determine the input.
  CHECK(required["if"]["required"] == nlohmann::json({"zoo"}));
  CHECK_FALSE(required.contains("required"));
  REQUIRE(required["allOf"].size() == 2);
  CHECK(required["allOf"][0]["if"]["properties"]["zoo"]["const"] == "tiny");
  CHECK(required["allOf"][0]["then"]["required"] == nlohmann::json({"classes"}));
  CHECK(tiny["properties"].contains("patch"));
  CHECK_FALSE(tiny["properties"].contains("layers"));
  CHECK(required["else"]["required"] == nlohmann::json({"input", "layers"}));
  CHECK(required["else"]["propertyNames"]["enum"] == nlohmann::json({"input", "layers", "patch"}));
  CHECK(model["properties"]["patch"]["items"]["oneOf"].size() == 4);
  CHECK_FALSE(model["properties"].contains("classes"));
  // With a base config, options may be given without the network's name.
  const std::string names = model["else"]["propertyNames"].dump();
  for (const char* key : {"classes", "layers", "patch", "input"}) {
    CHECK(names.find(key) != std::string::npos);
  }
  const std::string page = config_reference(small_catalog());
  for (const char* part : {"### `zoo: tiny`", "| `zoo` | one of tiny, tinier |  |",
                           "| `layers` | list of [layers](#layer) | required without `zoo` |",
                           "| `patch` | a list of changes |"}) {
    CHECK_MESSAGE(page.find(part) != std::string::npos, part);
  }
}

TEST_CASE("patch: each change sees the names that the changes before it have made") {
  CHECK(net_lines(net_config("  layers:\n"
                             "    - {type: ReLU, name: a}\n"
                             "    - {type: ReLU, name: b}\n"
                             "    - {type: ReLU, name: c}\n"
                             "    - {type: Flatten}\n"
                             "    - {type: Linear, name: fc, out_features: 10}\n"
                             "  patch:\n"
                             "    - {change: b, type: ReLU}\n"
                             "    - {insert_before: b, layers: [{type: ReLU, name: x}, {type: "
                             "ReLU, name: y}]}\n"
                             "    - {insert_after: b, layers: [{type: ReLU, name: z}]}\n"
                             "    - {insert_after: x, layers: [{type: ReLU, name: w}]}\n"
                             "    - {change: c, name: d}\n"
                             "    - {delete: b}\n"
                             "    - {insert_before: d, layers: [{type: ReLU, name: c}]}\n"
                             "    - {insert_after: c, layers: [{type: ReLU, name: e}]}\n")) ==
        Texts{"a ReLU", "x ReLU", "w ReLU", "y ReLU", "z ReLU", "c ReLU", "e ReLU", "d ReLU",
              "8 Flatten", "fc Linear"});
}

TEST_CASE("patch: messages name some of many layers, and suggestions end with the issues shown") {
  std::string text = "  layers:\n";
  for (int i = 0; i < 300; ++i) text += fmt::format("    - {{type: ReLU, name: n{}}}\n", i);
  text += "  patch:\n";
  for (int i = 0; i < 300; ++i) text += fmt::format("    - {{delete: x{}}}\n", i);
  const Texts issues = issues_of(net_config(text));
  REQUIRE(issues.size() == kMaxIssues);
  CHECK(issues[0].find("there is no layer 'x0', did you mean 'n0'? Layers: n0, n1, ") !=
        std::string::npos);
  CHECK(issues[0].ends_with(", n19, ... (300 in all)"));
  CHECK(issues.back().ends_with(" (and 100 more)"));
}
