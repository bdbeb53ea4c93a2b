#include "engine/layers/activation_shape.h"
#include "engine/layers/param_spec.h"
#include "tests/support/layer_case.h"

namespace dpt::testing {
namespace {

Options linear(std::int64_t features, Options more = {}) {
  Options all = {{"out_features", integer(features)}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST_CASE("Linear: shape, parameters, multiply-adds") {
  const auto made = layer("Linear", linear(128));
  const ActivationShape in = vector_of(800);
  CHECK(infer(*made, in).text() == "128");
  CHECK(infer(*made, in).flat);
  CHECK(made->forward_flops({&in, 1}, infer(*made, in)) == 2.0 * 800 * 128);
  const auto params = made->params({&in, 1});
  REQUIRE(params.size() == 2);
  CHECK(params[0].file_shape == std::vector<std::int64_t>{128, 800});
  CHECK(params[0].layout == ParamLayout::plain);
  CHECK(params[0].fan_in == 800);
  CHECK(params[0].fan_out == 128);
  CHECK(params[1].file_shape == std::vector<std::int64_t>{128});
  CHECK(params[1].fan_in == 800);
  CHECK(layer("Linear", linear(128, {{"bias", false}}))->params({&in, 1}).size() == 1);
}

TEST_CASE("Linear: after the Flatten of an image its columns are in (H,W,C) order") {
  const ActivationShape wide{{4, 5, 50}, true}, pixel{{1, 1, 50}, true};
  const auto made = layer("Linear", linear(128));
  const ParamSpec weight = made->params({&wide, 1})[0];
  CHECK(weight.layout == ParamLayout::linear_hwc);
  CHECK(weight.hwc == SampleShape{4, 5, 50});
  CHECK(weight.file_shape == std::vector<std::int64_t>{128, 1000});
  CHECK(made->params({&pixel, 1})[0].layout == ParamLayout::plain);
}

TEST_CASE("Linear: y = x W^T + b by hand") {
  const Maths maths = maths_of(*layer("Linear", linear(2)), vector_of(3), 1);
  CHECK(maths.forward({1, 2, 3}, {{1, 10, 100, 2, 20, 200}, {0.5, -0.5}}) == Values{321.5, 641.5});
}

TEST_CASE("Linear: an image as input asks for a Flatten") {
  CHECK(infer_error(*layer("Linear", linear(10)), image(50, 4, 4)) ==
        "expected a vector as input, found an image of 50x4x4 (C x H x W); add {type: Flatten} "
        "before it");
}

TEST_CASE("Linear: numbers and gradients, ReLU fused") {
  const auto made = layer("Linear", linear(5));
  check_layer(*made, vector_of(7));
  check_layer(*layer("Linear", linear(4, {{"bias", false}})), vector_of(33), 1);
  const auto relu = layer("ReLU");
  const auto fused = made->fuse(*relu);
  REQUIRE(fused);
  check_layer(*fused, vector_of(7));
  CHECK(fused->fuse(*relu) == nullptr);
  CHECK(made->fuse(*made) == nullptr);
}

TEST_CASE("Linear per pixel: the channels of an image, as PyTorch's after a permutation") {
  const auto pixels = layer("Linear", {{"out_features", integer(5)}, {"per_pixel", true}});
  const ActivationShape in = image(3, 2, 4);
  CHECK(infer(*pixels, in).text() == "5x2x4");
  CHECK_FALSE(infer(*pixels, in).flat);
  CHECK(infer_error(*pixels, vector_of(3)).starts_with("expected an image (C x H x W) as input"));
  const std::vector<ParamSpec> params = pixels->params({&in, 1});
  CHECK(params.at(0).file_shape == std::vector<std::int64_t>{5, 3});
  CHECK(params[0].layout == ParamLayout::plain);
  CHECK(params[0].fan_in == 3);
  CHECK(pixels->forward_flops({&in, 1}, infer(*pixels, in)) == 2 * 8 * 3 * 5);
  CHECK(pixels->detail() == "per pixel");
  CHECK(layer("Linear", {{"out_features", integer(5)}, {"per_pixel", true}, {"bias", false}})
            ->detail() == "per pixel, no bias");
  check_layer(*pixels, in);
  check_layer(*pixels->fuse(*layer("ReLU")), in);
  // A convolution with a kernel of one pixel gives the same numbers.
  const auto conv = layer("Conv2d", {{"out_channels", integer(5)}, {"kernel_size", square(1)}});
  const Values x = to_double(random_values(48, 1)), w = to_double(random_values(15, 2));
  const Values b = to_double(random_values(5, 3));
  CHECK(maths_of(*pixels, in, 2).forward(x, {w, b}) == maths_of(*conv, in, 2).forward(x, {w, b}));
}

}  // namespace
}  // namespace dpt::testing
