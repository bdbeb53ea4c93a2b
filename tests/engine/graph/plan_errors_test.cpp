// Every error that make_plan detects, as the user sees it.
#include "engine/graph/make_plan.h"
#include "engine/graph/plan.h"
#include "tests/support/model.h"

namespace dpt::testing {
namespace {

std::string plan_error(const ModelSpecBuilder& model) {
  return error_text([&] { make_plan(model.spec()); });
}

TEST_CASE("a kernel larger than its input names the layer and its line") {
  CHECK(plan_error(ModelSpecBuilder({1, 28, 28})
                       .conv("conv1", 50, 25)
                       .conv("conv2", 20, 7)
                       .add("Flatten")
                       .linear("fc", 10)) ==
        "net.yaml:11:7: layer 'conv2' (Conv2d): kernel_size 7x7 does not fit its input of 50x4x4 "
        "(C x H x W): it covers 7x7 pixels and the padded input has 4x4; make the kernel smaller, "
        "add padding, or downsample less before it");
}

TEST_CASE("several mistakes are several lines, in the order of the file") {
  CHECK(plan_error(ModelSpecBuilder({3, 8, 8})
                       .add("Conv2d",
                            {{"out_channels", integer(4)},
                             {"kernel_size", square(3)},
                             {"groups", integer(2)}},
                            "c")
                       .add("AdaptiveMaxPool2d", {{"output_size", square(2)}})
                       .linear("fc", 10)
                       .conv("late", 3, 3)) ==
        "net.yaml:10:7: layer 'c' (Conv2d): groups 2 must divide both the channels of its input, "
        "3, and out_channels, 4\nnet.yaml:11:7: layer '1' (AdaptiveMaxPool2d): output_size 2x2 is "
        "not supported: only 1 (the maximum of the whole image) is; use MaxPool2d for other "
        "sizes\nnet.yaml:12:7: layer 'fc' (Linear): expected a vector as input, found an image of "
        "4x2x2 (C x H x W); add {type: Flatten} before it\nnet.yaml:13:7: layer 'late' (Conv2d): "
        "expected an image (C x H x W) as input, found a vector of 10 features: this layer comes "
        "after a Flatten or Linear; move it before the Flatten");
}

TEST_CASE("mistakes of different sorts too come in the order of the file") {
  const auto error = [](int line, int column) {
    ModelSpecBuilder model({3, 8, 8});
    model.add("Conv2d",
              {{"out_channels", integer(4)}, {"kernel_size", square(3)}, {"groups", integer(2)}},
              "c");
    model.add("Flatten", {}, "flat", {"c", "d"}).linear("fc", 10);
    model.spec().model.layers[1].where = {"net.yaml", line, column};
    return plan_error(model);
  };
  const std::string shape =
      "net.yaml:10:7: layer 'c' (Conv2d): groups 2 must divide both the channels of its input, 3, "
      "and out_channels, 4";
  const std::string inputs = "layer 'flat' (Flatten): from: expected one input, found 2 (c, d)";
  CHECK(error(11, 7) == shape + "\nnet.yaml:11:7: " + inputs);
  CHECK(error(10, 50) == shape + "\nnet.yaml:10:50: " + inputs);
  CHECK(error(9, 50) == "net.yaml:9:50: " + inputs + "\n" + shape);
}

TEST_CASE("the last layer must have one output per class") {
  CHECK(plan_error(ModelSpecBuilder({1, 8, 8}).conv("c", 10, 3)) ==
        "net.yaml:10:7: layer 'c' (Conv2d): the last layer must have one output per class, found "
        "an image of 10x6x6 (C x H x W); end with {type: Flatten} and {type: Linear, out_features: "
        "CLASSES}");
  CHECK(plan_error(ModelSpecBuilder({1, 8, 8}).add("Flatten").linear("fc", 1)) ==
        "net.yaml:11:7: layer 'fc' (Linear): the last layer must have one output per class, at "
        "least 2, found 1");
  // With numeric targets, the model may have any number of outputs.
  TrainSpec spec = ModelSpecBuilder({1, 8, 8}).add("Flatten").linear("fc", 1).spec();
  spec.loss.type = "mse";
  CHECK(make_plan(spec).classes == 1);
}

TEST_CASE("a model without layers, parameters or a proper input") {
  CHECK(plan_error(ModelSpecBuilder({1, 8, 8})) ==
        "net.yaml:7:3: model.layers: expected at least one layer");
  CHECK(plan_error(ModelSpecBuilder({10, 1, 1}).add("Flatten")) ==
        "net.yaml:7:3: model.layers: no layer has parameters, so there is nothing to train");
  CHECK(plan_error(ModelSpecBuilder({28, 28}).add("Flatten").linear("fc", 10)) ==
        "net.yaml:7:3: model.input: expected [channels, height, width], each 1 to 65536, found "
        "[28, 28]");
  CHECK(plan_error(ModelSpecBuilder({1, 0, 28}).add("Flatten").linear("fc", 10)) ==
        "net.yaml:7:3: model.input: expected [channels, height, width], each 1 to 65536, found "
        "[1, 0, 28]");
  CHECK(plan_error(ModelSpecBuilder({65536, 65536, 65536}).add("Flatten").linear("fc", 10)) ==
        "net.yaml:7:3: model.input: 65536x65536x65536 is too large");
}

TEST_CASE("sizes at their bounds are accepted, and refused one past them") {
  const auto error = [](std::vector<std::int64_t> input, std::int64_t features) {
    return plan_error(ModelSpecBuilder(std::move(input)).add("Flatten").linear("fc", features));
  };
  CHECK(error({65536, 1, 1}, 2).empty());
  CHECK(error({65536, 1, 1}, 1 << 20).empty());  // 2^36 weights
  CHECK(error({1, 1, 65536}, 2).empty());
  CHECK(error({65537, 1, 1}, 2).find("each 1 to 65536, found [65537, 1, 1]") != std::string::npos);
  CHECK(error({1, 1, 65537}, 2).find("each 1 to 65536, found [1, 1, 65537]") != std::string::npos);
  CHECK(error({65536, 1, 1}, (1 << 20) + 1).find("its weight of 1048577x65536 is too large") !=
        std::string::npos);
  CHECK(error({16, 65536, 65536}, 2).find("its weight of 2x68719476736 is too large") !=
        std::string::npos);
  CHECK(error({17, 65536, 65536}, 2).find("model.input: 17x65536x65536 is too large") !=
        std::string::npos);
}

TEST_CASE("sizes whose product would wrap are refused") {
  CHECK(plan_error(ModelSpecBuilder({1, 65536, 65536}).conv("c", 65536, 1)) ==
        "net.yaml:10:7: layer 'c' (Conv2d): its output of 65536x65536x65536 is too large");
  CHECK(plan_error(ModelSpecBuilder({3, 4096, 4096}).add("Flatten").linear("fc", 1 << 24)) ==
        "net.yaml:11:7: layer 'fc' (Linear): its weight of 16777216x50331648 is too large for its "
        "input of 50331648");
}

TEST_CASE("names: duplicates, unknown, later, several inputs, unread outputs") {
  CHECK(plan_error(ModelSpecBuilder({1, 8, 8})
                       .conv("conv", 4, 3)
                       .conv("conv", 4, 3)
                       .add("Flatten")
                       .linear("fc", 10)) ==
        "net.yaml:11:7: layer 'conv' (Conv2d): the layer at net.yaml:10:7 already has this name; "
        "names must be unique");
  CHECK(plan_error(ModelSpecBuilder({1, 8, 8})
                       .conv("conv1", 4, 3)
                       .add("Flatten", {}, "flat", {"convl"})
                       .linear("fc", 10)) ==
        "net.yaml:11:7: layer 'flat' (Flatten): from: there is no layer 'convl' above; did you "
        "mean 'conv1'?");
  CHECK(plan_error(ModelSpecBuilder({1, 8, 8})
                       .conv("conv1", 4, 3)
                       .add("Flatten", {}, "flat", {"somewhere"})
                       .linear("fc", 10)) ==
        "net.yaml:11:7: layer 'flat' (Flatten): from: there is no layer 'somewhere' above (the "
        "layers above are: conv1, input)");
  CHECK(plan_error(ModelSpecBuilder({1, 8, 8})
                       .conv("conv1", 4, 3)
                       .add("Flatten", {}, "flat", {"fc"})
                       .linear("fc", 10)) ==
        "net.yaml:11:7: layer 'flat' (Flatten): from: 'fc' is this layer or a later one; a layer "
        "reads from layers above it");
  CHECK(plan_error(ModelSpecBuilder({1, 8, 8})
                       .conv("a", 4, 3)
                       .conv("b", 4, 3)
                       .add("Flatten", {}, "flat", {"a", "b"})
                       .linear("fc", 10)) ==
        "net.yaml:12:7: layer 'flat' (Flatten): from: expected one input, found 2 (a, b)");
  CHECK(plan_error(ModelSpecBuilder({1, 8, 8})
                       .conv("a", 4, 3)
                       .conv("b", 4, 3)
                       .add("Flatten", {}, "flat", {"a"})
                       .linear("fc", 10)) ==
        "net.yaml:11:7: layer 'b' (Conv2d): no layer reads its output, and it is not the last "
        "layer; remove it or name it in a later layer's from");
}

TEST_CASE("layers with several inputs: how many, and of which shapes") {
  const auto error = [](std::vector<std::string> from) {
    ModelSpecBuilder model({2, 8, 8});
    model.conv("a", 4, 3).add("Conv2d", {{"out_channels", integer(3)}, {"kernel_size", square(3)}},
                              "b", {"input"});
    model.add("Add", {}, "sum", std::move(from)).add("Flatten").linear("fc", 10);
    return plan_error(model);
  };
  const std::string sum = "net.yaml:12:7: layer 'sum' (Add): ";
  CHECK(error({"a", "b"}) == sum +
                                 "expected inputs of the same shape, found 4x6x6 as input 1 and "
                                 "3x6x6 as input 2 (C x H x W); a convolution with kernel_size 1 "
                                 "can change the number of channels, its stride the size");
  CHECK(error({}) ==
        sum + "from: expected the names of at least 2 layers, found none; write from: [a, b]");
  CHECK(error({"a"}) == sum + "from: expected 2 to 8 inputs, found 1 (a)");
  CHECK(error({"a", "a", "a", "a", "b", "b", "b", "b", "b"}) ==
        sum + "from: expected 2 to 8 inputs, found 9 (a, a, a, a, b, b, b, b, b)");
  CHECK(error({"c", "a", "d"}) == sum + "from: there is no layer 'c' above; did you mean 'a'?\n" +
                                      sum + "from: there is no layer 'd' above; did you mean 'a'?");
  // A layer that only an invalid list names is not reported as unread.
  CHECK(error({"a", "none"}).find("no layer reads") == std::string::npos);
}

TEST_CASE("share_weights: the name of an earlier layer of the same type with weights of its own") {
  const auto error = [](const std::string& owner) {
    return plan_error(ModelSpecBuilder({4, 8, 8})
                          .conv("conv1", 4, 3)
                          .conv("conv2", 4, 3)
                          .shares("conv1")
                          .conv("conv3", 4, 3)
                          .shares(owner)
                          .add("BatchNorm2d", {}, "bn1")
                          .add("Flatten", {}, "flat")
                          .linear("fc", 10));
  };
  const std::string conv3 = "net.yaml:12:7: layer 'conv3' (Conv2d): share_weights: ";
  CHECK(error("conv1").empty());
  CHECK(error("convl") == conv3 + "there is no layer 'convl' above; did you mean 'conv1'?");
  for (const std::string later : {"conv3", "fc"}) {
    CHECK(error(later) == conv3 + "'" + later +
                              "' is this layer or a later one; a layer shares the weights of "
                              "layers above it");
  }
  CHECK(error("conv2") ==
        conv3 +
            "'conv2' has no weights of its own, but shares those of 'conv1'; write "
            "share_weights: conv1");
  CHECK(error("input") ==
        conv3 + "expected the name of a layer, found 'input', which is the image");
  CHECK(plan_error(ModelSpecBuilder({4, 8, 8})
                       .conv("conv", 4, 3)
                       .add("GroupNorm", {{"num_groups", integer(2)}}, "norm")
                       .shares("conv")
                       .add("Flatten")
                       .linear("fc", 10)) ==
        "net.yaml:11:7: layer 'norm' (GroupNorm): share_weights: expected the name of another "
        "GroupNorm, found 'conv', which is a Conv2d");
}

TEST_CASE("share_weights: both layers have the same parameters, which can be shared") {
  const auto error = [](const std::string& type, const Options& first, const Options& second) {
    return plan_error(ModelSpecBuilder({4, 8, 8})
                          .add(type, first, "a")
                          .add(type, second, "b")
                          .shares("a")
                          .add("Flatten")
                          .linear("fc", 10));
  };
  const auto conv = [](std::int64_t channels, std::int64_t kernel, bool bias = true) {
    return Options{{"out_channels", integer(channels)},
                   {"kernel_size", square(kernel)},
                   {"padding", kWordSize},
                   {"bias", bias}};
  };
  const auto with = [](Options options, const std::string& name, const PlainValue& value) {
    options.emplace_back(name, value);
    return options;
  };
  const std::string b = "net.yaml:11:7: layer 'b' (Conv2d): share_weights: ";
  CHECK(error("Conv2d", conv(8, 3), conv(8, 3)) ==
        b + "expected the parameters of 'a', which are weight 8x4x3x3 and bias 8; this layer's are "
            "weight 8x8x3x3 and bias 8");
  CHECK(error("Conv2d", conv(4, 3), conv(4, 3, false)) ==
        b + "expected the parameters of 'a', which are weight 4x4x3x3 and bias 4; this layer's are "
            "weight 4x4x3x3");
  // Layers that share weights may move their windows differently.
  CHECK(error("Conv2d", conv(4, 3), with(conv(4, 3), "dilation", square(2))).empty());
  // A layer that shares weights may repeat the initialisation of their owner, but not set another.
  const Options normal = with(conv(4, 3), "weight_init", word("kaiming_normal"));
  CHECK(error("Conv2d", conv(4, 3), normal) ==
        b + "the initial weights are those of 'a', so weight_init has no effect here; remove it");
  CHECK(error("Conv2d", normal, normal).empty());
  CHECK(error("Conv2d", normal, conv(4, 3)).empty());
  CHECK(error("PReLU", {}, {{"init", 0.5}}).find("so init has no effect here") !=
        std::string::npos);

  CHECK(error("ReLU", {}, {}) ==
        "net.yaml:11:7: layer 'b' (ReLU): share_weights: neither this layer nor 'a' has weights");
  const Options plain = {{"num_groups", integer(2)}, {"affine", false}};
  CHECK(error("GroupNorm", {{"num_groups", integer(2)}}, plain) ==
        "net.yaml:11:7: layer 'b' (GroupNorm): share_weights: expected the parameters of 'a', "
        "which are weight 4 and bias 4; this layer's are none");
  CHECK(error("BatchNorm2d", {}, {}) ==
        "net.yaml:11:7: layer 'b' (BatchNorm2d): share_weights: a layer with running statistics "
        "cannot share them: they would be those of two different inputs; remove share_weights");
  CHECK(plan_error(ModelSpecBuilder({4, 2, 2})
                       .add("Flatten")
                       .linear("fc1", 16)
                       .linear("fc2", 16)
                       .shares("fc1")
                       .linear("fc3", 10)) ==
        "net.yaml:12:7: layer 'fc2' (Linear): share_weights: expected a flattened image of 4x2x2 "
        "as input, like that of 'fc1', found a vector: the columns of one weight cannot stand for "
        "the features of both");
}

TEST_CASE("a model made in code has no line to name") {
  ModelSpecBuilder model({1, 8, 8});
  model.linear("fc", 10).spec().model.layers[0].where = {};
  CHECK(plan_error(model) ==
        "layer 'fc' (Linear): expected a vector as input, found an image of 1x8x8 (C x H x W); add "
        "{type: Flatten} before it");
}

}  // namespace
}  // namespace dpt::testing
