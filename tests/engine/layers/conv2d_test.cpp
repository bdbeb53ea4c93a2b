#include "engine/layers/activation_shape.h"
#include "engine/layers/param_spec.h"
#include "tests/support/layer_case.h"

namespace dpt::testing {
namespace {

Options conv(std::int64_t channels, Size2 kernel, Options more = {}) {
  Options all = {{"out_channels", integer(channels)}, {"kernel_size", kernel}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

std::string out_text(const ActivationShape& in, const Options& options) {
  return infer(*layer("Conv2d", options), in).text();
}

TEST_CASE("Conv2d: output shapes are torch.nn.Conv2d's") {
  CHECK(out_text(image(1, 28, 28), conv(20, {3, 3})) == "20x26x26");
  CHECK(out_text(image(3, 224, 224),
                 conv(64, {7, 7}, {{"stride", square(2)}, {"padding", square(3)}})) ==
        "64x112x112");
  CHECK(out_text(image(2, 10, 9),
                 conv(4, {3, 2}, {{"stride", Size2{2, 3}}, {"padding", Size2{1, 0}}})) == "4x5x3");
  CHECK(out_text(image(2, 16, 16), conv(4, {3, 3}, {{"dilation", Size2{2, 3}}})) == "4x12x10");
  CHECK(out_text(image(1, 4, 4), conv(1, {4, 4})) == "1x1x1");
  CHECK(out_text(image(1, 2, 2), conv(1, {4, 4}, {{"padding", square(1)}})) == "1x1x1");
}

TEST_CASE("Conv2d: parameters have torchvision's shapes and fans") {
  const ActivationShape in = image(6, 8, 8);
  const auto params = layer("Conv2d", conv(4, {3, 5}, {{"groups", integer(2)}}))->params({&in, 1});
  REQUIRE(params.size() == 2);
  CHECK(params[0].suffix == "weight");
  CHECK(params[0].file_shape == std::vector<std::int64_t>{4, 3, 3, 5});
  CHECK(params[0].layout == ParamLayout::ohwi);
  CHECK(params[0].fan_in == 45);
  CHECK(params[0].fan_out == 60);
  CHECK(params[1].suffix == "bias");
  CHECK(params[1].file_shape == std::vector<std::int64_t>{4});
  CHECK(params[1].fan_in == 45);
  CHECK(layer("Conv2d", conv(4, {3, 5}, {{"bias", false}}))->params({&in, 1}).size() == 1);
}

TEST_CASE("Conv2d: a product by hand") {
  // One channel, 2x3 image, 2x2 kernel: PyTorch's correlation, not flipped.
  const Maths maths = maths_of(*layer("Conv2d", conv(1, {2, 2})), image(1, 2, 3), 1);
  const Values y = maths.forward({1, 2, 3, 4, 5, 6}, {{1, 10, 100, 1000}, {0.5}});
  CHECK(y == Values{1 + 20 + 400 + 5000 + 0.5, 2 + 30 + 500 + 6000 + 0.5});
}

TEST_CASE("Conv2d: multiply-adds count as two") {
  const ActivationShape in = image(20, 13, 13);
  const auto made = layer("Conv2d", conv(50, {5, 5}));
  CHECK(made->forward_flops({&in, 1}, infer(*made, in)) == 2.0 * 9 * 9 * 50 * 20 * 25);
  CHECK(made->backward_flops({&in, 1}, infer(*made, in), true) == 4.0 * 9 * 9 * 50 * 20 * 25);
  CHECK(made->backward_flops({&in, 1}, infer(*made, in), false) == 2.0 * 9 * 9 * 50 * 20 * 25);
}

TEST_CASE("Conv2d: error texts") {
  CHECK(
      infer_error(*layer("Conv2d", conv(20, {7, 7})), image(50, 4, 4)) ==
      "kernel_size 7x7 does not fit its input of 50x4x4 (C x H x W): it covers 7x7 pixels and the "
      "padded input has 4x4; make the kernel smaller, add padding, or downsample less before it");
  CHECK(infer_error(
            *layer("Conv2d", conv(20, {1, 3}, {{"dilation", square(3)}, {"padding", square(1)}})),
            image(5, 4, 4)) ==
        "kernel_size 1x3 does not fit its input of 5x4x4 (C x H x W) with padding 1x1 with "
        "dilation 3x3: it covers 1x7 pixels and the padded input has 6x6; make the kernel smaller, "
        "add padding, or downsample less before it");
  CHECK(infer_error(*layer("Conv2d", conv(20, {3, 3})), vector_of(800)) ==
        "expected an image (C x H x W) as input, found a vector of 800 features: this layer comes "
        "after a Flatten or Linear; move it before the Flatten");
  CHECK(infer_error(*layer("Conv2d", conv(6, {3, 3}, {{"groups", integer(4)}})), image(8, 9, 9)) ==
        "groups 4 must divide both the channels of its input, 8, and out_channels, 6");
  CHECK(infer_error(*layer("Conv2d", conv(8, {3, 3}, {{"groups", integer(4)}})), image(6, 9, 9)) ==
        "groups 4 must divide both the channels of its input, 6, and out_channels, 8");
}

TEST_CASE("Conv2d: numbers and gradients") {
  check_layer(*layer("Conv2d", conv(4, {3, 3})), image(2, 6, 7));
  check_layer(
      *layer("Conv2d", conv(5, {3, 2}, {{"stride", Size2{2, 3}}, {"padding", Size2{1, 2}}})),
      image(1, 7, 8));
  check_layer(*layer("Conv2d", conv(3, {3, 3}, {{"dilation", Size2{2, 1}}, {"bias", false}})),
              image(2, 8, 5));
  check_layer(*layer("Conv2d", conv(4, {3, 3}, {{"groups", integer(2)}, {"padding", square(1)}})),
              image(6, 5, 5));
  check_layer(*layer("Conv2d", conv(4, {1, 1}, {{"stride", square(2)}})), image(3, 5, 5));
}

TEST_CASE("Conv2d: with ReLU and pooling fused after it") {
  const auto conv1 = layer("Conv2d", conv(4, {3, 3}));
  const auto relu = layer("ReLU");
  const auto average = layer("AvgPool2d", {{"kernel_size", square(2)}});
  const auto max = layer("MaxPool2d", {{"kernel_size", square(3)}, {"stride", square(2)}});
  const auto conv_relu = conv1->fuse(*relu);
  REQUIRE(conv_relu);
  const ActivationShape in = image(2, 9, 8);
  CHECK(infer(*conv_relu, in).text() == "4x7x6");
  for (const Layer* pool : {average.get(), max.get()}) {
    const auto all = conv_relu->fuse(*pool);
    REQUIRE(all);
    CHECK(infer(*all, in).text() == (pool == max.get() ? "4x3x2" : "4x3x3"));
    CHECK(all->fuse(*relu) == nullptr);
    CHECK(all->fuse(*pool) == nullptr);
    check_layer(*all, in);
    const auto conv_pool = conv1->fuse(*pool);
    REQUIRE(conv_pool);
    check_layer(*conv_pool, in);
  }
  check_layer(*conv_relu, in);
  CHECK(conv_relu->fuse(*relu) == nullptr);
  CHECK(conv1->fuse(*conv1) == nullptr);
  CHECK(conv1->fuse(*layer("Flatten")) == nullptr);

  // Running the layers separately gives the same numbers.
  const ActivationShape wide = infer(*conv1, in);
  const Maths alone = maths_of(*conv1, in, 2), fused = maths_of(*conv_relu->fuse(*max), in, 2);
  const Values x = to_double(random_values(static_cast<std::int64_t>(alone.x), 5));
  const Values w = to_double(random_values(static_cast<std::int64_t>(alone.params[0]), 6));
  const Values b = to_double(random_values(4, 7));
  const Values y = maths_of(*max, wide, 2)
                       .forward(maths_of(*relu, wide, 2).forward(alone.forward(x, {w, b}), {}), {});
  CHECK(fused.forward(x, {w, b}) == y);
}

TEST_CASE("Conv2d: fields that contradict each other are refused") {
  const auto message = [](const Options& more) {
    const Variant made = variant("Conv2d", conv(4, {3, 3}, more));
    return made.table->check(made.options.get());
  };
  CHECK(message({}).empty());
  CHECK(message({{"weight_init", word("normal")}, {"weight_init_std", 0.1}}).empty());
  CHECK(message({{"weight_init", word("constant")}}) ==
        "weight_init: constant needs weight_init_value");
  CHECK(message({{"weight_init_value", 0.5}}) ==
        "weight_init_value has no effect with weight_init: default; it applies to constant and "
        "normal only");
  CHECK(message({{"weight_init", word("constant")},
                 {"weight_init_value", 1.0},
                 {"weight_init_std", 0.1}}) ==
        "weight_init_std has no effect with weight_init: constant; it applies to normal only");
  CHECK(message({{"bias", false}, {"bias_init", word("constant")}, {"bias_init_value", 0.0}}) ==
        "bias_init has no effect with bias: false");
  CHECK(message({{"bias_init", word("constant")}, {"bias_init_value", 0.0}}).empty());
}

TEST_CASE("Conv2d with padding: same keeps the size, as PyTorch's") {
  const auto same = [](Size2 kernel, Options more = {}) {
    more.emplace_back("padding", kWordSize);
    return layer("Conv2d", conv(2, kernel, more));
  };
  CHECK(infer(*same({3, 5}), image(3, 4, 1)).text() == "2x4x1");
  CHECK(infer(*same({2, 4}, {{"dilation", square(3)}}), image(3, 4, 5)).text() == "2x4x5");
  CHECK(same({3, 3})->detail() == "3x3, stride 1, padding same");
  const Variant strided =
      variant("Conv2d", conv(2, {3, 3}, {{"padding", kWordSize}, {"stride", Size2{1, 2}}}));
  CHECK(strided.table->check(strided.options.get()) ==
        "padding: same needs stride 1, found stride 1x2, as in PyTorch; write the padding as a "
        "number");
  // As in PyTorch, an even kernel gets one more zero after the image than before it.
  const auto even = layer("Conv2d", {{"out_channels", integer(1)},
                                     {"kernel_size", Size2{2, 4}},
                                     {"padding", kWordSize},
                                     {"bias", false}});
  const Maths maths = maths_of(*even, image(1, 2, 3), 1);
  const Values x = {1, 2, 3, 4, 5, 6}, w = {1, 2, 3, 4, 5, 6, 7, 8};
  CHECK(maths.forward(x, {w, {}}) == Values{127, 106, 69, 47, 32, 17});
  const Derivatives g = maths.backward(x, {w, {}}, {1, -1, 2, 0.5, 3, -2});
  CHECK(g.x == Values{1, 3, 5, 5, 16.5, 20});
  CHECK(g.params[0] == Values{5, 10, 19.5, 6, 6, 11, -1, 6});
  check_layer(*even, image(1, 2, 3));
  check_layer(*same({3, 3}), image(3, 5, 4));
  check_layer(*same({2, 3}, {{"dilation", square(2)}}), image(3, 5, 4));
  // Shapes for dpt's own kernels: channels that fill whole vectors, followed by a pooling.
  const auto wide = [&](Size2 kernel) {
    return layer("Conv2d",
                 {{"out_channels", integer(8)}, {"kernel_size", kernel}, {"padding", kWordSize}});
  };
  check_on_backends(*wide({4, 2}), image(8, 6, 6), 2);
  const auto pooled = wide({2, 2})->fuse(*layer("ReLU"))->fuse(*layer("MaxPool2d", pool({2, 2})));
  REQUIRE(pooled);
  check_on_backends(*pooled, image(1, 8, 8), 2);
}

TEST_CASE("Conv2d: the short text for the summary") {
  CHECK(layer("Conv2d", conv(4, {3, 3}))->detail() == "3x3, stride 1");
  CHECK(layer("Conv2d", conv(4, {3, 5},
                             {{"stride", square(2)},
                              {"padding", square(1)},
                              {"dilation", square(2)},
                              {"groups", integer(2)},
                              {"bias", false}}))
            ->detail() == "3x5, stride 2, padding 1, dilation 2, groups 2, no bias");
}

}  // namespace
}  // namespace dpt::testing
