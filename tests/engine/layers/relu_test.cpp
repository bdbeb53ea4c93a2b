#include "engine/layers/activation_shape.h"
#include "tests/support/layer_case.h"

namespace dpt::testing {
namespace {

TEST_CASE("ReLU: any shape, in place, no parameters") {
  const auto relu = layer("ReLU");
  CHECK(infer(*relu, image(3, 4, 5)).text() == "3x4x5");
  CHECK(infer(*relu, vector_of(7)).text() == "7");
  CHECK(relu->is_in_place());
  CHECK_FALSE(relu->is_view());
  const ActivationShape in = vector_of(7);
  CHECK(relu->params({&in, 1}).empty());
  CHECK(relu->forward_flops({&in, 1}, in) == 0);
  CHECK(output_of(*relu, vector_of(3), {-1, 0, 2}) == Values{0, 0, 2});
}

TEST_CASE("ReLU: numbers and gradients") {
  check_layer(*layer("ReLU"), image(3, 4, 5));
  check_layer(*layer("ReLU"), vector_of(17), 1);
}

}  // namespace
}  // namespace dpt::testing
