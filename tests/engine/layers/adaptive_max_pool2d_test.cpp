#include "tests/support/layer_case.h"

namespace dpt::testing {
namespace {

TEST_CASE("AdaptiveMaxPool2d: the maximum of the whole image") {
  const auto made = layer("AdaptiveMaxPool2d");
  CHECK(infer(*made, image(512, 7, 5)).text() == "512x1x1");
  CHECK(made->detail() == "whole image");
  CHECK(output_of(*made, image(1, 2, 3), {1, 2, 7, 4, 5, -9}) == Values{7});
  check_layer(*made, image(3, 4, 5));
  check_layer(*made, image(2, 20, 17));
  check_layer(*made, image(2, 1, 1));
  CHECK(infer_error(*layer("AdaptiveMaxPool2d", {{"output_size", Size2{2, 3}}}), image(8, 7, 7)) ==
        "output_size 2x3 is not supported: only 1 (the maximum of the whole image) is; use "
        "MaxPool2d for other sizes");
}

}  // namespace
}  // namespace dpt::testing
