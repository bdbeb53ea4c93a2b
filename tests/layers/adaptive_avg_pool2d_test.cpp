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

TEST_CASE("AdaptiveAvgPool2d: fuses with a convolution") {
  const auto conv = layer("Conv2d", {{"out_channels", integer(3)}, {"kernel_size", square(2)}});
  const auto fused = conv->fuse(*layer("AdaptiveAvgPool2d"));
  REQUIRE(fused);
  CHECK(infer(*fused, image(2, 5, 6)).text() == "3x1x1");
  check_layer(*fused, image(2, 5, 6));
}

TEST_CASE("AdaptiveAvgPool2d: error texts") {
  CHECK(
      infer_error(*layer("AdaptiveAvgPool2d", {{"output_size", Size2{2, 3}}}), image(512, 7, 7)) ==
      "output_size 2x3 is not supported: only 1 (the mean of the whole image) is; use AvgPool2d "
      "for other sizes");
  CHECK(infer_error(*layer("AdaptiveAvgPool2d"), vector_of(4)) ==
        "expected an image (C x H x W) as input, found a vector of 4 features: it comes after a "
        "Flatten or Linear; move it before the Flatten");
}

}  // namespace
}  // namespace dpt::testing
