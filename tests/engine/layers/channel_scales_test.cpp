// PReLU and LayerScale.
#include "engine/layers/activation_shape.h"
#include "engine/layers/param_spec.h"
#include "kernels/devices.h"
#include "tests/support/bf16_case.h"

namespace dpt::testing {
namespace {

std::unique_ptr<Layer> prelu(std::int64_t count) {
  return layer("PReLU", {{"num_parameters", integer(count)}});
}

TEST_CASE("PReLU: one weight, or one for each channel or feature") {
  const ActivationShape in = image(3, 4, 5), flat = vector_of(7), pixels = {{4, 5, 3}, true};
  using Shape = std::vector<std::int64_t>;
  const auto one = layer("PReLU");
  for (const ActivationShape& each : {in, flat, pixels}) {
    CHECK(infer(*one, each).text() == each.text());
    const std::vector<ParamSpec> params = one->params({&each, 1});
    REQUIRE(params.size() == 1);
    CHECK(params[0].suffix == "weight");
    CHECK(params[0].file_shape == Shape{1});
    CHECK(params[0].layout == ParamLayout::plain);
    CHECK(params[0].init.kind == InitKind::constant);
    CHECK(params[0].init.value == 0.25);
  }
  CHECK(prelu(3)->params({&in, 1})[0].file_shape == Shape{3});
  CHECK(prelu(60)->params({&pixels, 1})[0].layout == ParamLayout::vector_hwc);
  CHECK(infer_error(*prelu(2), in) ==
        "num_parameters 2 must be 1 or the number of channels of its input, 3");
  CHECK(infer_error(*prelu(3), flat) ==
        "num_parameters 3 must be 1 or the number of features of its input, 7");
  CHECK(one->detail() == "one weight");
  CHECK(prelu(3)->detail() == "3 weights");
}

TEST_CASE("PReLU: PyTorch's numbers") {
  const std::vector<float> x = {1, 2, -3, 4, 0.5, -1, 2, 8}, dy = {1, -1, 0.5, 2, 0.25, 3, -2, 1};
  for (const std::string& name : backend_names()) {
    CAPTURE(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    const std::unique_ptr<Op> op = compile(*prelu(4), *backend, image(4, 1, 2), 1);
    OpRunner runner(*backend, *op, x, {0.25, 0.5, -1, 2}, {}, 8);
    check_close("y", runner.forward(), {1, 2, 3, 4, 0.5, -0.5, 2, 8}, 1e-7);
    const OpResult result = runner.backward(dy);
    check_close("dx", result.dx, {1, -1, -0.5, 2, 0.25, 1.5, -2, 1}, 1e-7);
    check_close("dweight", result.dweight, {0, -3, -1.5, 0}, 1e-7);
  }
}

TEST_CASE("LayerScale: a factor for each channel, under the layer's own name") {
  const auto scale = layer("LayerScale");
  const ActivationShape in = image(3, 4, 5);
  CHECK(infer(*scale, in).text() == "3x4x5");
  CHECK(infer_error(*scale, vector_of(7)).starts_with("expected an image (C x H x W) as input"));
  const std::vector<ParamSpec> params = scale->params({&in, 1});
  REQUIRE(params.size() == 1);
  CHECK(params[0].suffix.empty());
  CHECK(params[0].file_shape == std::vector<std::int64_t>{3, 1, 1});
  CHECK(params[0].init.value == 1e-6);
}

TEST_CASE("PReLU, LayerScale: numbers and gradients") {
  check_layer(*layer("PReLU"), image(3, 4, 5));
  check_layer(*prelu(4), image(4, 3, 2));
  check_layer(*prelu(5), vector_of(5), 7);
  check_layer(*layer("LayerScale"), image(3, 4, 5));
  // More rows and columns than a kernel sums at once.
  check_on_backends(*layer("PReLU"), image(70, 9, 8), 9);
  check_on_backends(*layer("LayerScale"), image(70, 9, 8), 9);
  check_in_bf16(*prelu(8), {image(8, 4, 5)}, 3);
  check_in_bf16(*layer("LayerScale"), {image(3, 4, 5)}, 3);
}

}  // namespace
}  // namespace dpt::testing
