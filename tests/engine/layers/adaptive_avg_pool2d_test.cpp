#include "tests/support/layer_case.h"

namespace dpt::testing {
namespace {

TEST_CASE("AdaptiveAvgPool2d: the mean of the whole image") {
  const auto made = layer("AdaptiveAvgPool2d", {{"output_size", square(1)}});
  CHECK(infer(*made, image(512, 7, 5)).text() == "512x1x1");
  CHECK(made->detail() == "whole image");
  CHECK(output_of(*made, image(1, 2, 3), {1, 2, 3, 4, 5, 9}) == Values{4});
  check_layer(*made, image(3, 4, 5));
  check_layer(*layer("AdaptiveAvgPool2d"), image(2, 1, 1));
}

TEST_CASE("AdaptiveAvgPool2d: to a size that divides the image's, or does not, or is larger") {
  const auto made = [](Size2 size) { return layer("AdaptiveAvgPool2d", {{"output_size", size}}); };
  CHECK(infer(*made({2, 3}), image(512, 7, 5)).text() == "512x2x3");
  CHECK(made({2, 3})->detail() == "to 2x3");
  // PyTorch's windows over 5 pixels are {0, 1}, {1, 2, 3} and {3, 4}.
  CHECK(output_of(*made({1, 3}), image(1, 1, 5), {0, 2, 4, 6, 11}) == Values{1, 4, 8.5});
  CHECK(output_of(*made({1, 3}), image(1, 1, 2), {1, 5}) == Values{1, 3, 5});
  check_layer(*made({7, 7}), image(6, 7, 7));
  check_layer(*made({2, 3}), image(4, 4, 6));
  check_layer(*made({3, 2}), image(3, 7, 5));
  check_layer(*made({5, 6}), image(2, 3, 4));
  const auto conv = layer("Conv2d", {{"out_channels", integer(3)}, {"kernel_size", square(2)}});
  CHECK_FALSE(conv->fuse(*made({2, 2})));
}

TEST_CASE("AdaptiveAvgPool2d: fuses with a convolution") {
  const auto conv = layer("Conv2d", {{"out_channels", integer(3)}, {"kernel_size", square(2)}});
  const auto fused = conv->fuse(*layer("AdaptiveAvgPool2d"));
  REQUIRE(fused);
  CHECK(infer(*fused, image(2, 5, 6)).text() == "3x1x1");
  check_layer(*fused, image(2, 5, 6));
}

TEST_CASE("AdaptiveAvgPool2d: error texts") {
  CHECK(infer_error(*layer("AdaptiveAvgPool2d"), vector_of(4)) ==
        "expected an image (C x H x W) as input, found a vector of 4 features: this layer comes "
        "after a Flatten or Linear; move it before the Flatten");
}

}  // namespace
}  // namespace dpt::testing
