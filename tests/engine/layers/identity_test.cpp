#include "engine/layers/activation_shape.h"
#include "tests/support/layer_case.h"

namespace dpt::testing {
namespace {

TEST_CASE("Identity: a view of the same shape") {
  const auto made = layer("Identity");
  CHECK(made->is_view());
  CHECK(infer(*made, image(5, 4, 3)).text() == "5x4x3");
  CHECK_FALSE(infer(*made, image(5, 4, 3)).flat);
  CHECK(infer(*made, vector_of(7)).text() == "7");
  const ActivationShape in = image(5, 4, 3);
  CHECK(made->params({&in, 1}).empty());
}

}  // namespace
}  // namespace dpt::testing
