#include "engine/layers/activation_shape.h"
#include "kernels/devices.h"
#include "kernels/reference/reference_shapes.h"
#include "tests/support/bf16_case.h"

namespace dpt::testing {
namespace {

std::unique_ptr<Layer> zero_pad(std::vector<std::int64_t> padding) {
  return layer("ZeroPad2d", {{"padding", std::move(padding)}});
}
std::unique_ptr<Layer> upsample(Size2 scale) {
  return layer("Upsample", {{"scale_factor", scale}});
}

TEST_CASE("ZeroPad2d and Upsample: shapes, as PyTorch's") {
  const auto pad = zero_pad({1, 2, 3, 4});  // left, right, top, bottom
  CHECK(infer(*pad, image(3, 4, 5)).text() == "3x11x8");
  CHECK(pad->detail() == "left 1, right 2, top 3, bottom 4");
  const auto larger = upsample({2, 3});
  CHECK(infer(*larger, image(3, 4, 5)).text() == "3x8x15");
  CHECK(larger->detail() == "nearest, scale_factor 2x3");
  for (const Layer* each : {pad.get(), larger.get()}) {
    CHECK_FALSE(each->is_view());
    CHECK_FALSE(each->is_in_place());
    CHECK(infer_error(*each, vector_of(7)).starts_with("expected an image (C x H x W) as input"));
    const ActivationShape in = image(3, 4, 5);
    CHECK(each->params({&in, 1}).empty());
  }
  CHECK(output_of(*zero_pad({1, 0, 0, 1}), image(1, 2, 2), {1, 2, 3, 4}) ==
        Values{0, 1, 2, 0, 3, 4, 0, 0, 0});
  CHECK(output_of(*upsample({1, 2}), image(1, 2, 2), {1, 2, 3, 4}) ==
        Values{1, 1, 2, 2, 3, 3, 4, 4});
}

TEST_CASE("ZeroPad2d and Upsample: numbers and gradients") {
  check_layer(*zero_pad({1, 2, 3, 0}), image(3, 4, 5));
  check_layer(*zero_pad({0, 0, 0, 1}), image(8, 2, 3));
  check_layer(*zero_pad({0, 0, 0, 0}), image(1, 2, 3), 1);
  check_layer(*upsample({2, 2}), image(3, 4, 5));
  check_layer(*upsample({1, 3}), image(4, 2, 3));
  // More channels than a kernel sums at once.
  check_on_backends(*upsample({2, 2}), image(70, 2, 2), 2);
  check_in_bf16(*zero_pad({1, 2, 3, 0}), {image(3, 4, 5)}, 2);
  check_in_bf16(*upsample({2, 3}), {image(8, 3, 2)}, 2);
}

TEST_CASE("PadChannels: shapes, numbers and gradients") {
  const auto pad = [](std::int64_t before, std::int64_t after) {
    return layer("PadChannels", {{"before", before}, {"after", after}});
  };
  const auto three = pad(1, 2);
  CHECK(infer(*three, image(3, 4, 5)).text() == "6x4x5");
  CHECK(three->detail() == "before 1, after 2");
  CHECK(infer_error(*three, vector_of(7)).starts_with("expected an image (C x H x W) as input"));
  const ActivationShape in = image(3, 4, 5);
  CHECK(three->params({&in, 1}).empty());
  CHECK(output_of(*three, image(2, 1, 2), {1, 2, 3, 4}) == Values{0, 1, 2, 0, 0, 0, 3, 4, 0, 0});
  check_layer(*three, image(3, 4, 5));
  check_layer(*pad(0, 5), image(8, 2, 3));
  check_layer(*pad(0, 0), image(2, 2, 3), 1);
  check_in_bf16(*pad(8, 8), {image(16, 2, 3)}, 2);
}

TEST_CASE("an operation that moves pixels can cut some off") {
  struct Map {
    Size2 scale, before;
  };
  const std::vector<Map> maps = {{{2, 1}, {-3, -1}}, {{1, 1}, {-1, -2}}, {{1, 1}, {2, 3}},
                                 {{1, 2}, {1, 0}},   {{1, 1}, {0, -9}},  {{1, 1}, {9, 0}}};
  for (const Map& map : maps) {
    CAPTURE(map.before.h);
    CAPTURE(map.before.w);
    PixelMapDesc d;
    d.batch = 2;
    d.in = {4, 5, 2};
    d.out = {3, 4, 2};
    d.scale = map.scale;
    d.before = map.before;
    const std::vector<float> x = random_values(d.batch * d.in.elements(), 1);
    const std::vector<float> dy = random_values(d.batch * d.out.elements(), 2);
    for (const std::string& name : backend_names()) {
      CAPTURE(name);
      const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
      const std::unique_ptr<Op> op = backend->make(d);
      OpRunner runner(*backend, *op, x, {}, {}, static_cast<std::int64_t>(dy.size()));
      check_close("y", runner.forward(), reference::pixel_map(d, to_double(x)));
      check_close("dx", runner.backward(dy).dx, reference::pixel_map_backward(d, to_double(dy)));
    }
  }
}

}  // namespace
}  // namespace dpt::testing
