#include "engine/layers/activation_shape.h"
#include "tests/support/layer_case.h"

namespace dpt::testing {
namespace {

TEST_CASE("Add: two or more inputs of one shape, in place, no parameters") {
  const auto add = layer("Add");
  CHECK(add->input_count().least == 2);
  CHECK(add->input_count().most == kMaxInputs);
  CHECK(infer(*add, image(3, 4, 5)).text() == "3x4x5");
  CHECK(infer(*add, vector_of(7)).text() == "7");
  CHECK(add->is_in_place());
  CHECK_FALSE(add->is_view());
  const std::vector<ActivationShape> in(2, image(3, 4, 5));
  CHECK(add->params(in).empty());
  CHECK(output_of(*add, vector_of(3), {-1, 0, 2, 1, 5, -3}) == Values{0, 5, -1});
}

TEST_CASE("Add: inputs of other shapes are refused") {
  const auto add = layer("Add");
  const auto error = [&](const std::vector<ActivationShape>& in) {
    return error_text([&] { add->infer(in); });
  };
  const std::string how =
      " (C x H x W); a convolution with kernel_size 1 can change the number of channels, its "
      "stride the size";
  CHECK(error({image(3, 4, 5), image(3, 4, 5), image(2, 4, 5)}) ==
        "expected inputs of the same shape, found 3x4x5 as input 1 and 2x4x5 as input 3" + how);
  CHECK(error({vector_of(4), vector_of(5)}) ==
        "expected inputs of the same shape, found 4 as input 1 and 5 as input 2; a Linear gives a "
        "vector of another size");
  CHECK(error({vector_of(60), image(60, 1, 1)}) ==
        "expected inputs of the same shape, found 60 as input 1 and 60x1x1 as input 2" + how);
  CHECK(error({vector_of(60), {{4, 5, 3}, true}}) ==
        "expected inputs of the same shape, found vectors of 60 features in different orders: one "
        "in the order of an image's pixels, the other not; add the images before the Flatten, or "
        "put a Linear after it");
}

TEST_CASE("Add: takes in a ReLU, once") {
  const auto add = layer("Add");
  const std::unique_ptr<Layer> fused = add->fuse(*layer("ReLU"));
  REQUIRE(fused);
  CHECK(output_of(*fused, vector_of(3), {-1, 0, 2, -1, 5, -3}) == Values{0, 5, 0});
  CHECK_FALSE(fused->fuse(*layer("ReLU")));
  CHECK_FALSE(add->fuse(*add));
}

TEST_CASE("Add: numbers and gradients") {
  const auto add = layer("Add");
  const std::unique_ptr<Layer> fused = add->fuse(*layer("ReLU"));
  for (const Layer* each : {add.get(), fused.get()}) {
    check_layer(*each, image(3, 4, 5));
    check_layer(*each, vector_of(17), 1);
  }
}

}  // namespace
}  // namespace dpt::testing
