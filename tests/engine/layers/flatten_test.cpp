#include "engine/layers/activation_shape.h"
#include "tests/support/layer_case.h"

namespace dpt::testing {
namespace {

TEST_CASE("Flatten: a view that remembers the image") {
  const auto made = layer("Flatten");
  CHECK(made->is_view());
  const ActivationShape out = infer(*made, image(50, 4, 3));
  CHECK(out.text() == "600");
  CHECK(out.flat);
  CHECK(out.shape == SampleShape{4, 3, 50});
  CHECK(infer(*made, vector_of(7)).text() == "7");
  const ActivationShape in = image(50, 4, 3);
  CHECK(made->params({&in, 1}).empty());
}

}  // namespace
}  // namespace dpt::testing
