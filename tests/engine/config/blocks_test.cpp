// Blocks: names, repetition, inputs of the layers in a block, and invalid blocks.
#include "engine/config/blocks.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "engine/config/read_spec.h"
#include "engine/config/show_spec.h"
#include "engine/config/stored_spec.h"
#include "tests/engine/config/resolved_schema.h"
#include "tests/engine/config/small_catalog.h"

using namespace dpt;
using namespace dpt::testing;
using Texts = std::vector<std::string>;

namespace {

/// Returns a config whose layers start at line 4, each line indented by four.
std::string config(const std::string& layers) {
  return "data: {dataset: synthetic, batch_size: 8}\nmodel:\n  input: [3, 8, 8]\n  layers:" +
         layers + "\noptimizer: {type: Adam, lr: 1e-3}\ntrain: {epochs: 1}\n";
}

/// Returns "name type" of each layer that runs, with " < inputs" if it does not read the previous
/// one.
Texts flat(const TrainSpec& spec) {
  Texts lines;
  for (const LayerSpec& layer : spec.model.layers) {
    lines.push_back(layer.name + " " + layer.op.type);
    if (!layer.from.empty()) lines.back() += fmt::format(" < {}", fmt::join(layer.from, ", "));
    if (!layer.share_weights.empty()) lines.back() += " = " + layer.share_weights;
  }
  return lines;
}
Texts flat(const std::string& layers) {
  return flat(good_spec(config(layers)));
}

Texts issues(const std::string& layers) {
  return issues_of(config(layers));
}

const std::string kConv = "{type: Conv2d, out_channels: 3, kernel_size: 1}";
std::string conv(const std::string& name, const std::string& more = "") {
  return "{type: Conv2d, name: " + name + ", out_channels: 3, kernel_size: 1" + more + "}";
}

/// The first two stages of a residual network, named as in torchvision.
const std::string kStages = R"(
    - {type: Conv2d, name: conv1, out_channels: 4, kernel_size: 3}
    - {type: ReLU, name: relu}
    - type: Residual
      name: layer1
      repeat: 2
      layers:
        - {type: Conv2d, name: conv1, out_channels: 4, kernel_size: 3}
        - {type: ReLU, name: relu}
        - {type: Conv2d, name: conv2, out_channels: 4, kernel_size: 3}
      activation: ReLU
    - type: Sequential
      name: layer2
      layers:
        - type: Residual
          layers: [{type: Conv2d, name: conv1, out_channels: 8, kernel_size: 3, stride: 2}]
          shortcut:
            - type: Sequential
              name: downsample
              layers: [{type: Conv2d, out_channels: 8, kernel_size: 1, stride: 2}, {type: ReLU}]
        - type: Residual
          repeat: 2
          layers: [{type: Conv2d, name: conv1, out_channels: 8, kernel_size: 3}]
    - {type: Flatten}
    - {type: Linear, name: fc, out_features: 10})";

}  // namespace

TEST_CASE("blocks expand to layers under torchvision's names") {
  CHECK(flat(kStages) == Texts{
                             "conv1 Conv2d",
                             "relu ReLU",
                             "layer1.0.conv1 Conv2d",
                             "layer1.0.relu ReLU",
                             "layer1.0.conv2 Conv2d",
                             "layer1.0.add Add < layer1.0.conv2, relu",
                             "layer1.0.activation ReLU",
                             "layer1.1.conv1 Conv2d",
                             "layer1.1.relu ReLU",
                             "layer1.1.conv2 Conv2d",
                             "layer1.1.add Add < layer1.1.conv2, layer1.0.activation",
                             "layer1.1.activation ReLU",
                             "layer2.0.conv1 Conv2d",
                             "layer2.0.downsample.0 Conv2d < layer1.1.activation",
                             "layer2.0.downsample.1 ReLU",
                             "layer2.0.add Add < layer2.0.conv1, layer2.0.downsample.1",
                             "layer2.1.conv1 Conv2d",
                             "layer2.1.add Add < layer2.1.conv1, layer2.0.add",
                             "layer2.2.conv1 Conv2d",
                             "layer2.2.add Add < layer2.2.conv1, layer2.1.add",
                             "4 Flatten",
                             "fc Linear",
                         });
}

TEST_CASE("a Sequential gives names and no layers of its own") {
  CHECK(flat(" [{type: Sequential, name: features, layers: [" + kConv + ", {type: ReLU}]}]") ==
        Texts{"features.0 Conv2d", "features.1 ReLU"});
  CHECK(flat(" [{type: Sequential, layers: [" + kConv + ", {type: ReLU, name: r}]}, " + kConv +
             "]") == Texts{"0.0 Conv2d", "0.r ReLU", "1 Conv2d"});
  // Names may have dots, and each level of nested blocks adds one name.
  CHECK(flat(" [{type: Sequential, name: a.b, layers: [{type: Sequential, name: c, layers: "
             "[{type: Sequential, name: d, layers: [" +
             kConv + "]}]}]}]") == Texts{"a.b.c.d.0 Conv2d"});
}

TEST_CASE("repeat numbers the copies: below the name, or in the list if there is none") {
  const std::string block = "{type: Sequential, repeat: 2, layers: [" + conv("c") + "]";
  CHECK(flat(" [" + block + ", name: b}]") == Texts{"b.0.c Conv2d", "b.1.c Conv2d"});
  CHECK(flat(" [{type: ReLU}, " + block + "}, {type: ReLU}]") ==
        Texts{"0 ReLU", "1.c Conv2d", "2.c Conv2d", "3 ReLU"});
  CHECK(flat(" [" + block + ", name: b}, {type: ReLU}]") ==
        Texts{"b.0.c Conv2d", "b.1.c Conv2d", "1 ReLU"});
  // A single copy is numbered too, so that another number of copies changes no name.
  CHECK(flat(" [{type: Sequential, name: b, repeat: 1, layers: [" + conv("c") + "]}]") ==
        Texts{"b.0.c Conv2d"});
  // A repeated block is shorthand for a Sequential of its copies.
  CHECK(flat(" [{type: Sequential, name: b, layers: [" + block + "}]}]") ==
        flat(" [" + block + ", name: b}]"));
  CHECK(flat(" [{type: Sequential, name: a, repeat: 2, layers: [" + block + ", name: b}]}]") ==
        Texts{"a.0.b.0.c Conv2d", "a.0.b.1.c Conv2d", "a.1.b.0.c Conv2d", "a.1.b.1.c Conv2d"});
}

TEST_CASE("a Residual adds its input or its shortcut to its branch") {
  // The first layer's input is the image.
  CHECK(flat(" [{type: Residual, name: r, layers: [" + kConv + "]}]") ==
        Texts{"r.0 Conv2d", "r.add Add < r.0, input"});
  // Numbering of unnamed layers continues in the shortcut; a second block reads the first one's
  // sum.
  CHECK(flat(" [{type: Residual, repeat: 2, layers: [" + kConv + ", " + kConv + "], shortcut: [" +
             kConv + "]}]") == Texts{"0.0 Conv2d", "0.1 Conv2d", "0.2 Conv2d < input",
                                     "0.add Add < 0.1, 0.2", "1.0 Conv2d", "1.1 Conv2d",
                                     "1.2 Conv2d < 0.add", "1.add Add < 1.1, 1.2"});
  // Residuals at the start of a branch and of a shortcut.
  CHECK(flat(" [" + conv("x") +
             ", {type: Residual, name: r, layers: [{type: Residual, name: s, "
             "layers: [" +
             conv("c") + "]}], shortcut: [{type: Residual, name: t, layers: [" + conv("c") +
             "]}]}]") == Texts{"x Conv2d", "r.s.c Conv2d", "r.s.add Add < r.s.c, x",
                               "r.t.c Conv2d < x", "r.t.add Add < r.t.c, x",
                               "r.add Add < r.s.add, r.t.add"});
}

TEST_CASE("from: the innermost block first, then outward; a block's name is its output") {
  const std::string x = conv("x") + ", ";
  CHECK(flat(" [" + x + "{type: Sequential, name: b, layers: [" + conv("y") + ", " + x +
             "{type: Add, from: [y, x]}]}]")
            .back() == "b.2 Add < b.y, b.x");
  CHECK(flat(" [" + x + "{type: Sequential, name: b, layers: [" + conv("y") +
             ", {type: Add, from: [x, y, input]}]}]")
            .back() == "b.1 Add < x, b.y, input");
  // Blocks, copies of blocks, and layers inside blocks are read by dotted names.
  const std::string block = "{type: Residual, name: b, repeat: 2, layers: [" + conv("c") + "]}, ";
  CHECK(flat(" [" + block + "{type: Add, from: [b, b.0, b.0.c, b.1]}]").back() ==
        "1 Add < b.1.add, b.0.add, b.0.c, b.1.add");
  // A name in a later block, and a name relative to an enclosing block.
  CHECK(flat(" [{type: Sequential, name: a, layers: [" + block +
             "{type: Sequential, name: d, layers: [{type: Add, from: [b.0, a.b]}]}]}]")
            .back() == "a.d.0 Add < a.b.0.add, a.b.1.add");
  // `from` of a block sets the input of its layers, in the first copy only.
  CHECK(flat(" [" + x + conv("y") + ", {type: Residual, name: b, from: x, repeat: 2, layers: [" +
             conv("c") + "]}]") == Texts{"x Conv2d", "y Conv2d", "b.0.c Conv2d < x",
                                         "b.0.add Add < b.0.c, x", "b.1.c Conv2d",
                                         "b.1.add Add < b.1.c, b.0.add"});
  CHECK(flat(" [" + x + "{type: Residual, name: b, from: input, layers: [" + conv("c") + "]}]")
            .back() == "b.add Add < b.c, input");
  // A layer called input hides the image from its position on.
  CHECK(flat(" [{type: Sequential, name: b, layers: [" + conv("input") + ", " + conv("c") +
             ", {type: Add, from: [input, c]}]}]")
            .back() == "b.2 Add < b.input, b.c");
}

TEST_CASE("share_weights names layers as from does") {
  const auto shares = [](const std::string& name, const std::string& owner) {
    return conv(name, ", share_weights: " + owner);
  };
  const std::string x = conv("x") + ", ";
  CHECK(flat(" [" + x + shares("y", "x") + "]") == Texts{"x Conv2d", "y Conv2d = x"});
  // The innermost block is searched first; a copy shares with a layer of the same copy, or of an
  // earlier one.
  CHECK(flat(" [" + x + "{type: Sequential, name: b, repeat: 2, layers: [" + shares("y", "x") +
             ", " + conv("w") + ", " + shares("z", "w") + "]}]") ==
        Texts{"x Conv2d", "b.0.y Conv2d = x", "b.0.w Conv2d", "b.0.z Conv2d = b.0.w",
              "b.1.y Conv2d = x", "b.1.w Conv2d", "b.1.z Conv2d = b.1.w"});
  CHECK(flat(" [" + x + "{type: Sequential, name: b, layers: [" + x + shares("y", "x") + "]}]")
            .back() == "b.y Conv2d = b.x");
  CHECK(flat(" [{type: Residual, name: b, repeat: 2, layers: [" + conv("c") + "]}, " +
             shares("y", "b.1.c") + "]")
            .back() == "y Conv2d = b.1.c");
  const TrainSpec spec =
      good_spec(config(" [{type: Sequential, name: b, layers: [" + x + shares("y", "x") + "]}]"));
  CHECK(shown(spec).find("name: \"y\"\n          share_weights: x\n") != std::string::npos);
  const std::string expanded = shown(with_explicit_layers(spec));
  CHECK(expanded.find("name: b.y\n      share_weights: b.x\n") != std::string::npos);
  CHECK(shown(good_spec(expanded)) == expanded);
  // A resumed run cannot change which weights are shared.
  const Texts changes =
      refused_changes(small_catalog(), shown(good_spec(config(" [" + x + conv("y") + "]"))), "a",
                      shown(good_spec(config(" [" + x + shares("y", "x") + "]"))));
  CHECK(changes == Texts{"model.layers.y.share_weights: (absent) -> x"});
}

TEST_CASE("share_weights: layers that it cannot name") {
  const auto shares = [](const std::string& owner) {
    return "\n    - " + conv("y", ", share_weights: " + owner);
  };
  const std::string x = "\n    - " + conv("x1");
  CHECK(issues(x + shares("x")) ==
        Texts{"6:79: expected the name of an earlier layer in 'share_weights', found 'x', did you "
              "mean 'x1'? Earlier layers: x1"});
  CHECK(issues(x + shares("input")) ==
        Texts{"6:79: expected the name of an earlier layer in 'share_weights', found 'input'. "
              "Earlier layers: x1"});
  CHECK(issues(shares("x1") + x) ==
        Texts{"5:79: expected the name of an earlier layer in 'share_weights', found 'x1', which "
              "does not come before this layer"});
  CHECK(issues("\n    - {type: Residual, name: b, repeat: 2, layers: [" + conv("c") + "]}" +
               shares("b.0")) ==
        Texts{"6:79: expected the name of a layer in 'share_weights', found 'b.0', which is a "
              "Residual block: name a layer of it"});
  CHECK(issues(x + "\n    - {type: Sequential, share_weights: x1, repeat: 2, layers: [" +
               conv("c") + "]}") ==
        Texts{"6:41: layer '1': a Sequential block has no weights of its own: write share_weights "
              "in the layers of the block"});
}

TEST_CASE("an error inside a block is reported with the line as written and the full name") {
  const auto block = [](const std::string& layers) {
    return "\n    - type: Sequential\n      name: b\n      repeat: 3\n      layers:" + layers;
  };
  // The issue is reported once, not once for each copy.
  CHECK(issues(block("\n        - " + conv("conv1") + "\n        - {type: ReLU, from: conv2}")) ==
        Texts{"10:30: layer 'b.0.1': expected the name of an earlier layer in 'from', found "
              "'conv2', did you mean 'conv1'? Earlier layers: conv1"});
  CHECK(issues(block("\n        - {type: ReLU, from: b}")) ==
        Texts{"9:30: layer 'b.0.0': expected the name of an earlier layer in 'from', found 'b', "
              "which is a block around this layer"});
  CHECK(issues("\n    - " + conv("x") +
               block("\n        - {type: ReLU, from: [x, y]}\n        - " + conv("y"))) ==
        Texts{"10:34: layer 'b.0.0': expected the name of an earlier layer in 'from', found 'y', "
              "which does not come before this layer"});
  CHECK(issues("\n    - " + conv("x") + block("\n        - " + conv("x", ", from: x"))) ==
        Texts{"10:74: layer 'b.0.x': expected the name of an earlier layer in 'from', found 'x', "
              "which does not come before this layer; it hides the earlier layer 'x', so rename "
              "one of them"});
  CHECK(issues(block("\n        - " + conv("x") + "\n        - " + conv("x"))) ==
        Texts{"10:32: layer 'b.0.x': expected a unique layer name, found 'x', which is also the "
              "name of layer 0 in line 9"});
  CHECK(issues(block("\n        - " + conv("'x y'"))) ==
        Texts{"9:32: expected a layer name of letters, digits, '_', '-' and '.', found 'x y'"});
  for (const std::string name : {"optim", "dpt.integrity"}) {
    CHECK(issues(block("\n        - " + conv(name))) ==
          Texts{"9:32: '" + name +
                "' is reserved: in checkpoints, names that begin with 'optim.' or 'dpt.' belong to "
                "the optimizer and to dpt"});
  }
  CHECK(issues(block("\n        - " + conv("optimal"))).empty());
  CHECK(issues(block("\n        - {type: Conv2D, name: x}")) ==
        Texts{"9:18: unknown layer 'Conv2D', did you mean 'Conv2d'? Known layers: Conv2d, ReLU, "
              "Flatten, Linear, Add, Sequential, Residual"});
  CHECK(issues(block("\n        - {type: Conv2d, out_channels: 0, kernel_size: 1}")) ==
        Texts{"9:40: expected an integer from 1 to 65536, found 0"});
  // Names that a block generates must be unique too.
  CHECK(issues("\n    - {type: Residual, name: b, layers: [" + conv("add") + "]}") ==
        Texts{"5:63: layer 'b.add': expected a unique layer name, found 'add', which is also the "
              "name of the layer that its Residual block adds in line 5"});
  CHECK(issues("\n    - " + conv("b.0") + block("\n        - {type: ReLU}")) ==
        Texts{"7:13: layer 'b.0': expected a unique layer name, found 'b', which is also the name "
              "of layer 0 in line 5"});
  // Two blocks with the same name are one mistake, not one for each layer.
  const std::string twin = "\n    - {type: Sequential, name: b, layers: [" + conv("x") + "]}";
  CHECK(issues(twin + twin) == Texts{"6:32: expected a unique layer name, found 'b', which is also "
                                     "the name of layer 0 in line 5"});
  CHECK(issues(twin + block("\n        - " + conv("x"))) ==
        Texts{"7:13: expected a unique layer name, found 'b', which is also the name of layer 0 in "
              "line 5"});
}

TEST_CASE("required fields of a block") {
  CHECK(issues("\n    - {type: Sequential, name: b, layers: []}") ==
        Texts{"5:43: expected a list of at least 1 layer, found an empty list"});
  CHECK(issues("\n    - {type: Residual, name: b, layers: []}") ==
        Texts{"5:41: expected a list of at least 1 layer, found an empty list"});
  CHECK(issues("\n    - {type: Sequential, name: b}") ==
        Texts{"5:7: missing key 'layers' in layer Sequential: The layers of the block, in order."});
  for (const char* repeat : {"0", "-1", "10001"}) {
    CHECK(issues("\n    - {type: Residual, repeat: " + std::string(repeat) + ", layers: [" + kConv +
                 "]}") ==
          Texts{"5:32: expected an integer from 1 to 10000, found " + std::string(repeat)});
  }
  CHECK(issues("\n    - {type: Sequential, shortcut: [], layers: [" + kConv + "]}") ==
        Texts{"5:26: unknown key 'shortcut' in layer Sequential; it belongs to Residual. Known "
              "keys: type, name, from, share_weights, layers, repeat"});
  CHECK(issues("\n    - {type: Residual, activation: Relu, layers: [" + kConv + "]}") ==
        Texts{"5:36: expected 'ReLU', found 'Relu'; did you mean 'ReLU'?"});
  CHECK(issues("\n    - " + conv("a") + "\n    - " + conv("b") +
               "\n    - {type: Residual, name: c, from: [a, b], layers: [" + kConv + "]}") ==
        Texts{"7:39: expected one name in 'from' of a Residual block, found 2 (a, b)"});
}

TEST_CASE("the number of layers is limited once blocks are expanded") {
  const auto repeated = [](int times, const std::string& what) {
    return fmt::format("{{type: Sequential, name: b, repeat: {}, layers: [{}]}}", times, what);
  };
  CHECK(flat(" [" + repeated(100, repeated(100, kConv)) + "]").size() == kMaxLayers);
  CHECK(issues(" [" + repeated(100, repeated(100, kConv)) + ", {type: ReLU}]") ==
        Texts{fmt::format("4:{}: expected at most 10000 layers after expanding all blocks, found "
                          "more; layer '1' exceeds the limit",
                          repeated(100, repeated(100, kConv)).size() + 14)});
  const Texts most = issues(" [" + repeated(9999, repeated(9999, repeated(9999, kConv))) + "]");
  REQUIRE(most.size() == 1);
  CHECK(most[0].ends_with("layer 'b.0.b.1.b.1.0' exceeds the limit"));
  // The issue is reported quickly, even if the blocks are empty, which is itself an error.
  std::string empty = "{type: Sequential, repeat: 10000, layers: []}";
  for (int i = 0; i < 8; ++i) empty = repeated(10000, empty);
  CHECK(issues(" [" + empty + "]").size() >= 1);
}

TEST_CASE("config show prints blocks as written, or the layers they stand for") {
  const TrainSpec spec = good_spec(config(kStages));
  const std::string text = shown(spec);
  CHECK(text.find("- type: Residual\n      name: layer1\n      layers:\n") != std::string::npos);
  CHECK(text.find("      repeat: 2\n") != std::string::npos);
  CHECK(text.find("          name: \"1\"\n") != std::string::npos);  // downsample.1
  CHECK(text.find("layer1.0") == std::string::npos);
  const TrainSpec again = load_spec_text(small_catalog(), text, "/elsewhere/shown.yaml");
  CHECK(shown(again) == text);
  CHECK(flat(again) == flat(spec));

  const TrainSpec explicit_spec = with_explicit_layers(spec);
  const std::string expanded = shown(explicit_spec);
  for (const char* gone : {"Sequential", "Residual", "repeat", "shortcut", "activation:"}) {
    CHECK_MESSAGE(expanded.find(gone) == std::string::npos, gone);
  }
  const TrainSpec plain = load_spec_text(small_catalog(), expanded, "/elsewhere/shown.yaml");
  CHECK(flat(plain) == flat(spec));
  CHECK(shown(plain) == expanded);
  CHECK(shown(with_explicit_layers(plain)) == expanded);
  // Each value is shown with the line where it stands in the block.
  std::string origins = show_spec(small_catalog(), explicit_spec, true);
  for (std::size_t at; (at = origins.find("  #")) != std::string::npos;) origins.erase(at, 1);
  CHECK(origins.find("    - type: Conv2d # test.yaml:11\n      name: layer1.0.conv1 # "
                     "test.yaml:11\n      out_channels: 4 # test.yaml:11\n") != std::string::npos);
  CHECK(origins.find("    - type: Add # default\n") != std::string::npos);
}

TEST_CASE("a resumed run may write its blocks in another way, but not change them") {
  const TrainSpec spec = good_spec(config(kStages));
  const std::string stored = shown(spec);
  CHECK(refused_changes(small_catalog(), stored, "a", shown(with_explicit_layers(spec))).empty());
  std::string changed = kStages;
  changed.replace(changed.find("repeat: 2"), 9, "repeat: 1");
  const Texts found =
      refused_changes(small_catalog(), stored, "a", shown(good_spec(config(changed))));
  REQUIRE_FALSE(found.empty());
  CHECK(found[0] == "model.layers.layer1.1.conv1.type: Conv2d -> (absent)");
  // Former names of keys are recognised in blocks too.
  std::string older = stored;
  older.replace(older.find("stride: 2"), 9, "hop: 2");
  CHECK(shown(load_stored_spec(small_catalog(), older, "a")) == stored);
}

TEST_CASE("values in blocks can be overridden by path") {
  const TrainSpec spec =
      good_spec(config(kStages), {"model.layers.layer1.layers.conv2.stride=3",
                                  "model.layers.layer2.layers.0.shortcut.downsample.layers.0."
                                  "kernel_size=5",
                                  "model.layers.layer1.repeat=1"});
  CHECK(spec.model.layers[4].name == "layer1.0.conv2");
  CHECK(spec.model.layers[4].op.as<SmallConv>().stride == Size2{3, 3});
  CHECK(spec.model.layers[8].name == "layer2.0.downsample.0");
  CHECK(spec.model.layers[8].op.as<SmallConv>().kernel_size == Size2{5, 5});
}

TEST_CASE("the schema of a layer is that of a block's layers too") {
  const auto schema = resolved_schema(small_catalog());
  const nlohmann::json ref = {{"$ref", "#/$defs/layer"}};
  CHECK(schema["properties"]["model"]["else"]["properties"]["layers"]["items"] == ref);
  const auto& residual = schema["$defs"]["layer.Residual"]["properties"];
  CHECK(residual["layers"]["items"] == ref);
  CHECK(residual["shortcut"]["items"] == ref);
  CHECK(residual["activation"]["anyOf"][0]["enum"] == nlohmann::json::array({"ReLU"}));
  CHECK(schema["$defs"]["layer"]["properties"]["type"]["enum"].back() == "Residual");
  const auto& sequential = schema["$defs"]["layer.Sequential"];
  CHECK(sequential["required"] == nlohmann::json({"layers"}));
  CHECK(sequential["properties"]["layers"]["minItems"] == 1);
  // A block itself has no weights to share.
  CHECK_FALSE(sequential["properties"].contains("share_weights"));
  CHECK_FALSE(residual.contains("share_weights"));
  CHECK(schema["$defs"]["layer.Linear"]["properties"].contains("share_weights"));
}
