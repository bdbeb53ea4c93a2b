#include "engine/layers/activation_shape.h"
#include "tests/support/layer_case.h"

namespace dpt::testing {
namespace {

std::string max_pooled(const ActivationShape& in, const Options& options) {
  return infer(*layer("MaxPool2d", options), in).text();
}

TEST_CASE("MaxPool2d: output shapes are torch.nn.MaxPool2d's") {
  CHECK(max_pooled(image(20, 26, 26), pool({2, 2})) == "20x13x13");
  CHECK(max_pooled(image(50, 9, 9), pool({2, 2})) == "50x4x4");
  CHECK(max_pooled(image(50, 9, 9), pool({2, 2}, {{"ceil_mode", true}})) == "50x5x5");
  CHECK(max_pooled(image(64, 112, 112),
                   pool({3, 3}, {{"stride", square(2)}, {"padding", square(1)}})) == "64x56x56");
  CHECK(max_pooled(image(2, 8, 9), pool({2, 3}, {{"stride", Size2{3, 1}}})) == "2x3x7");
  // ceil_mode drops a window that would begin in the padding after the image. For two pixels, the
  // size is (2 + 2 - 2 + 1) / 2 + 1 = 2: windows at -1 and 1. A third, at 3, would be dropped.
  CHECK(max_pooled(image(1, 2, 2), pool({2, 2}, {{"padding", square(1)}, {"ceil_mode", true}})) ==
        "1x2x2");
  CHECK(max_pooled(
            image(1, 3, 3),
            pool({2, 2}, {{"padding", square(1)}, {"stride", square(3)}, {"ceil_mode", true}})) ==
        "1x2x2");
  CHECK(max_pooled(image(1, 1, 1), pool({1, 1}, {{"stride", square(3)}, {"ceil_mode", true}})) ==
        "1x1x1");
  CHECK(max_pooled(image(1, 4, 4), pool({1, 1}, {{"stride", square(5)}, {"ceil_mode", true}})) ==
        "1x1x1");
  CHECK(max_pooled(image(1, 9, 9),
                   pool({3, 3}, {{"stride", square(1)}, {"dilation", Size2{2, 3}}})) == "1x5x3");
}

TEST_CASE("MaxPool2d: the stride is the kernel unless given") {
  CHECK(layer("MaxPool2d", pool({2, 3}))->detail() == "2x3, stride 2x3");
  CHECK(layer("MaxPool2d", pool({2, 2}, {{"stride", square(1)},
                                         {"padding", square(1)},
                                         {"dilation", square(2)},
                                         {"ceil_mode", true}}))
            ->detail() == "2x2, stride 1, padding 1, dilation 2, ceil");
}

TEST_CASE("MaxPool2d: padding never wins") {
  const auto made = layer("MaxPool2d", pool({2, 2}, {{"padding", square(1)}}));
  CHECK(output_of(*made, image(1, 2, 2), {-1, -2, -3, -4}) == Values{-1, -2, -3, -4});
}

TEST_CASE("MaxPool2d: error texts") {
  CHECK(
      infer_error(*layer("MaxPool2d", pool({3, 3})), image(50, 2, 4)) ==
      "kernel_size 3x3 does not fit its input of 50x2x4 (C x H x W): it covers 3x3 pixels and the "
      "padded input has 2x4; make the kernel smaller, add padding, or downsample less before it");
  CHECK(infer_error(*layer("MaxPool2d", pool({3, 3}, {{"padding", square(2)}})), image(5, 9, 9)) ==
        "padding 2x2 is more than half of kernel_size 3x3: windows at the border would contain "
        "only padding; use a padding of at most 1x1");
  CHECK(infer_error(*layer("MaxPool2d", pool({2, 2})), vector_of(9)) ==
        "expected an image (C x H x W) as input, found a vector of 9 features: this layer comes "
        "after a Flatten or Linear; move it before the Flatten");
  CHECK(infer_error(
            *layer("MaxPool2d", pool({2, 2}, {{"padding", square(1)}, {"dilation", square(5)}})),
            image(1, 4, 4)) ==
        "a window of kernel_size 2x2 with dilation 5x5 and padding 1x1 covers no pixel of its "
        "input of 1x4x4 (C x H x W); use less dilation or padding");
}

TEST_CASE("MaxPool2d: numbers and gradients") {
  check_layer(*layer("MaxPool2d", pool({2, 2})), image(3, 6, 7));
  check_layer(*layer("MaxPool2d", pool({3, 3}, {{"stride", square(2)}, {"padding", square(1)}})),
              image(2, 7, 6));
  check_layer(*layer("MaxPool2d", pool({2, 3}, {{"stride", Size2{2, 1}}, {"ceil_mode", true}})),
              image(2, 5, 6));
  check_layer(*layer("MaxPool2d", pool({2, 2}, {{"stride", square(1)}, {"dilation", square(2)}})),
              image(2, 6, 6));
}

}  // namespace
}  // namespace dpt::testing
