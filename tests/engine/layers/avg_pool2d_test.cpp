#include "engine/layers/activation_shape.h"
#include "tests/support/layer_case.h"

namespace dpt::testing {
namespace {

TEST_CASE("AvgPool2d: output shapes are torch.nn.AvgPool2d's") {
  const auto out = [](const ActivationShape& in, const Options& options) {
    return infer(*layer("AvgPool2d", options), in).text();
  };
  CHECK(out(image(20, 26, 26), pool({2, 2}, {{"stride", square(2)}})) == "20x13x13");
  CHECK(out(image(50, 9, 9), pool({2, 2})) == "50x4x4");
  CHECK(out(image(50, 9, 9), pool({2, 2}, {{"ceil_mode", true}})) == "50x5x5");
  CHECK(out(image(5, 7, 8), pool({3, 2}, {{"stride", Size2{2, 1}}, {"padding", Size2{1, 0}}})) ==
        "5x4x7");
}

TEST_CASE("AvgPool2d: the divisor is PyTorch's") {
  const ActivationShape in = image(1, 1, 3);
  const Values x = {1, 2, 4};
  const auto out = [&](Options more) {
    more.push_back({"stride", Size2{1, 2}});
    more.push_back({"padding", Size2{0, 1}});
    return output_of(*layer("AvgPool2d", pool({1, 2}, more)), in, x);
  };
  // The windows are (pad, 1) and (2, 4).
  CHECK(out({}) == Values{0.5, 3});
  CHECK(out({{"count_include_pad", false}}) == Values{1, 3});
  CHECK(out({{"divisor_override", integer(4)}}) == Values{0.25, 1.5});
  // The overhang of ceil_mode never counts, but padding does. The window over (4, overhang) divides
  // by 1.
  const auto ceil = layer("AvgPool2d", pool({1, 2}, {{"ceil_mode", true}}));
  CHECK(output_of(*ceil, in, x) == Values{1.5, 4});
}

TEST_CASE("AvgPool2d: error texts") {
  CHECK(
      infer_error(*layer("AvgPool2d", pool({4, 2}, {{"padding", Size2{1, 2}}})), image(5, 9, 9)) ==
      "padding 1x2 is more than half of kernel_size 4x2: windows at the border would contain only "
      "padding; use a padding of at most 2x1");
  CHECK(
      infer_error(*layer("AvgPool2d", pool({5, 5})), image(50, 4, 4)) ==
      "kernel_size 5x5 does not fit its input of 50x4x4 (C x H x W): it covers 5x5 pixels and the "
      "padded input has 4x4; make the kernel smaller, add padding, or downsample less before it");
}

TEST_CASE("AvgPool2d: numbers and gradients") {
  check_layer(*layer("AvgPool2d", pool({2, 2})), image(3, 6, 7));
  check_layer(*layer("AvgPool2d", pool({3, 3}, {{"stride", square(2)}, {"padding", square(1)}})),
              image(2, 7, 6));
  check_layer(*layer("AvgPool2d", pool({3, 2}, {{"stride", square(2)},
                                                {"padding", square(1)},
                                                {"ceil_mode", true},
                                                {"count_include_pad", false}})),
              image(2, 6, 7));
  check_layer(
      *layer("AvgPool2d",
             pool({3, 3}, {{"stride", square(2)}, {"ceil_mode", true}, {"padding", square(1)}})),
      image(2, 6, 6));
  check_layer(*layer("AvgPool2d", pool({2, 2}, {{"divisor_override", integer(3)}})),
              image(2, 4, 6));
}

}  // namespace
}  // namespace dpt::testing
