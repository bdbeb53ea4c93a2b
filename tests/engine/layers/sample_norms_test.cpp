// GroupNorm, LayerNorm and LayerNorm2d.
#include "engine/layers/activation_shape.h"
#include "engine/layers/param_spec.h"
#include "kernels/devices.h"
#include "tests/support/bf16_case.h"

namespace dpt::testing {
namespace {

std::unique_ptr<Layer> group_norm(std::int64_t groups, Options more = {}) {
  more.emplace_back("num_groups", integer(groups));
  return layer("GroupNorm", more);
}

TEST_CASE("GroupNorm, LayerNorm: shapes and parameters, as PyTorch's") {
  const ActivationShape in = image(6, 4, 5), flat = vector_of(7), pixels = {{4, 5, 3}, true};
  const auto group = group_norm(3), all = layer("LayerNorm"), channels = layer("LayerNorm2d");
  CHECK(infer(*group, in).text() == "6x4x5");
  CHECK(infer(*all, in).text() == "6x4x5");
  CHECK(infer(*all, flat).text() == "7");
  CHECK(infer(*channels, in).text() == "6x4x5");
  CHECK(infer_error(*group_norm(4), in) == "num_groups 4 must divide the channels of its input, 6");
  const std::string error =
      "expected an image (C x H x W) as input, found a vector of 7 features; use LayerNorm, or "
      "move it before the Flatten";
  CHECK(infer_error(*group, flat) == error);
  CHECK(infer_error(*channels, flat) == error);

  using Shape = std::vector<std::int64_t>;
  const auto check_params = [](const Layer& made, const ActivationShape& at, const Shape& shape,
                               ParamLayout layout) {
    const std::vector<ParamSpec> params = made.params({&at, 1});
    REQUIRE(params.size() == 2);
    for (std::size_t i = 0; i < 2; ++i) {
      CHECK(params[i].suffix == (i == 0 ? "weight" : "bias"));
      CHECK(params[i].file_shape == shape);
      CHECK(params[i].layout == layout);
      CHECK(params[i].init.kind == InitKind::constant);
      CHECK(params[i].init.value == (i == 0 ? 1 : 0));
    }
  };
  check_params(*group, in, {6}, ParamLayout::plain);
  check_params(*channels, in, {6}, ParamLayout::plain);
  check_params(*all, in, {6, 4, 5}, ParamLayout::vector_hwc);
  check_params(*all, flat, {7}, ParamLayout::plain);
  check_params(*all, pixels, {60}, ParamLayout::vector_hwc);
  CHECK(group_norm(2, {{"affine", false}})->params({&in, 1}).empty());
  CHECK(layer("LayerNorm", {{"elementwise_affine", false}})->params({&in, 1}).empty());
  CHECK(layer("LayerNorm", {{"bias", false}})->params({&in, 1}).size() == 1);

  CHECK(group->detail() == "3 groups");
  CHECK(group_norm(1, {{"affine", false}})->detail() == "1 group, not affine");
  CHECK(all->detail().empty());
  CHECK(layer("LayerNorm2d", {{"bias", false}})->detail() == "no bias");
  CHECK(layer("LayerNorm", {{"elementwise_affine", false}})->detail() == "not affine");
  for (const Layer* each : {group.get(), all.get(), channels.get()}) {
    CHECK_FALSE(each->coupling(false));
    CHECK_FALSE(each->is_in_place());
  }
}

TEST_CASE("GroupNorm, LayerNorm: PyTorch's numbers") {
  struct NormCase {
    std::unique_ptr<Layer> made;
    Values y, dx, dweight, dbias;
  };
  // One image of 4x1x2, in the order of the activations.
  const std::vector<float> x = {1, 2, -3, 4, 0.5, -1, 2, 8}, dy = {1, -1, 0.5, 2, 0.25, 3, -2, 1};
  std::vector<NormCase> cases;
  cases.push_back({group_norm(2),
                   {-0.826795658, 0.93683184, -1.84428666, 1.6311942, -1.05773478, -1.83443763,
                    0.0492959425, 3.65101565},
                   {0.304835809, 0.116995101, 0.263542242, 0.705629896, -0.640469888, 0.218638979,
                    -0.953581067, -0.0155910703},
                   {0.317541293, -5.77347806, -0.347156811, 1.95670203},
                   {1.25, 2, -1.5, 3}});
  cases.push_back({layer("LayerNorm2d"),
                   {-1, 0.0588986352, -2.02005848, 3.35339181, -1.27441053, -1.32121125,
                    0.168687014, 4.29292639},
                   {-0.220630482, -0.929665009, 0.360173805, 0.790121686, -0.0952171689,
                    0.765263713, -1.02887419, 0.358827649},
                   {-0.137205266, -3.35586572, -0.564935511, 3.99985501},
                   {1.25, 2, -1.5, 3}});
  cases.push_back({layer("LayerNorm"),
                   {-1.11118481, -0.334714117, -1.91478391, 2.04994745, -0.988637855, -1.13630068,
                    0.587406879, 5.08351502},
                   {-0.073044146, -0.563284301, 0.0974077654, 0.835879221, -0.162922472,
                    0.930539502, -1.27948778, 0.214912215},
                   {-0.22236963, -0.101077105, -0.758078284, 1.49594115, -0.0960232493, -2.6077893,
                    -0.202154209, 2.04175751},
                   {1, -1, 0.5, 2, 0.25, 3, -2, 1}});
  for (const NormCase& c : cases) {
    CAPTURE(c.dweight.size());
    // weight = linspace(0.5, 2), bias = linspace(-1, 1) over PyTorch's parameters, in (C, H, W).
    const std::size_t count = c.dweight.size();
    std::vector<float> weight(count), bias(count);
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t file = count == 4 ? i : i % 4 * 2 + i / 4;
      const double at = static_cast<double>(file) / static_cast<double>(count - 1);
      weight[i] = static_cast<float>(0.5 + 1.5 * at);
      bias[i] = static_cast<float>(-1 + 2 * at);
    }
    for (const std::string& name : backend_names()) {
      CAPTURE(name);
      const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
      const std::unique_ptr<Op> op = compile(*c.made, *backend, image(4, 1, 2), 1);
      OpRunner runner(*backend, *op, x, weight, bias, 8);
      check_close("y", runner.forward(), c.y, 1e-6);
      const OpResult result = runner.backward(dy);
      check_close("dx", result.dx, c.dx, 1e-6);
      check_close("dweight", result.dweight, c.dweight, 1e-6);
      check_close("dbias", result.dbias, c.dbias, 1e-6);
    }
  }
}

TEST_CASE("GroupNorm, LayerNorm: numbers and gradients") {
  check_layer(*group_norm(2), image(6, 4, 3));
  check_layer(*group_norm(5, {{"eps", 0.1}}), image(5, 3, 3));
  check_layer(*group_norm(1, {{"affine", false}}), image(4, 2, 3), 1);
  check_layer(*layer("LayerNorm"), image(3, 2, 5));
  check_layer(*layer("LayerNorm", {{"bias", false}}), vector_of(17));
  check_layer(*layer("LayerNorm2d"), image(9, 3, 2));
  check_layer(*layer("LayerNorm2d", {{"elementwise_affine", false}}), image(5, 2, 2));
  // More rows, columns and values per normalised set than a kernel sums at once: several adjacent
  // groups in two blocks of columns, and groups too wide for that.
  check_on_backends(*group_norm(22), image(66, 9, 8), 2);
  check_on_backends(*group_norm(2, {{"affine", false}}), image(80, 3, 3), 2);
  check_on_backends(*group_norm(2), image(70, 9, 7), 9);
  check_on_backends(*layer("LayerNorm2d"), image(65, 9, 8), 9);
  check_on_backends(*layer("LayerNorm"), image(6, 20, 21), 2);
  check_in_bf16(*group_norm(2), {image(6, 4, 3)}, 3);
  check_in_bf16(*group_norm(1), {image(40, 2, 3)}, 3);
  check_in_bf16(*layer("LayerNorm2d"), {image(16, 3, 2)}, 3);
}

TEST_CASE("GroupNorm, LayerNorm: a mean far from zero costs no accuracy") {
  // All values are multiples of 2^-11, so that the subtraction is exact, in fp32 too.
  std::vector<float> x = random_values(2 * 96, 1);
  for (float& value : x) value = 4000 + std::ldexp(std::floor(std::ldexp(value, 11)), -11);
  const std::vector<float> dy = random_values(2 * 96, 2);
  for (const auto& made :
       {group_norm(2, {{"affine", false}}), layer("LayerNorm", {{"elementwise_affine", false}})}) {
    const ActivationShape in = image(4, 6, 4);
    const Maths maths = maths_of(*made, in, 2);
    const Values y = maths.forward(to_double(x), {{}, {}});
    for (const std::string& name : backend_names()) {
      CAPTURE(name);
      const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
      const std::unique_ptr<Op> op = compile(*made, *backend, in, 2);
      OpRunner runner(*backend, *op, x, {}, {}, 2 * 96);
      // The mean, about 4000, is rounded to a float: half a unit in the last place is 1.2e-4.
      check_close("y", runner.forward(), y, 2e-4);
    }
  }
}

}  // namespace
}  // namespace dpt::testing
