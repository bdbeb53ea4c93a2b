#include <cmath>
#include <limits>

#include "engine/layers/activation_shape.h"
#include "kernels/devices.h"
#include "tests/kernels/bf16_values.h"
#include "tests/support/layer_case.h"

namespace dpt::testing {
namespace {

struct Case {
  const char* type;
  Options options;
  bool in_place;
  /// PyTorch's y and dy/dx at kPoints, computed in float64.
  Values y, slope;
};

const Values kPoints = {-4, -3, -1.5, -0.25, 0, 0.75, 2.5, 3, 6.5};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {"LeakyReLU",
       {},
       true,
       {-0.04, -0.03, -0.015, -0.0025, 0, 0.75, 2.5, 3, 6.5},
       {0.01, 0.01, 0.01, 0.01, 0.01, 1, 1, 1, 1}},
      {"LeakyReLU",
       {{"negative_slope", 0.2}},
       true,
       {-0.8, -0.6, -0.3, -0.05, 0, 0.75, 2.5, 3, 6.5},
       {0.2, 0.2, 0.2, 0.2, 0.2, 1, 1, 1, 1}},
      {"LeakyReLU",
       {{"negative_slope", -0.5}},
       false,
       {2, 1.5, 0.75, 0.125, 0, 0.75, 2.5, 3, 6.5},
       {-0.5, -0.5, -0.5, -0.5, -0.5, 1, 1, 1, 1}},
      {"ReLU6", {}, true, {0, 0, 0, 0, 0, 0.75, 2.5, 3, 6}, {0, 0, 0, 0, 0, 1, 1, 1, 0}},
      {"GELU",
       {},
       false,
       {-0.000126684967, -0.00404969409, -0.100210802, -0.100323419, 0, 0.580029486, 2.48447584,
        2.99595031, 6.5},
       {-0.000503649661, -0.0119456472, -0.127469192, 0.304626645, 0.5, 0.999225722, 1.03761109,
        1.01194565, 1}},
      {"GELU",
       {{"approximate", word("tanh")}},
       false,
       {-7.02459482e-05, -0.00363739208, -0.100428423, -0.100324649, 0, 0.579960555, 2.48491573,
        2.99636261, 6.5},
       {-0.000335123197, -0.0115841666, -0.127710793, 0.304645905, 0.5, 0.998938256, 1.03795158,
        1.01158417, 1}},
      {"SiLU",
       {},
       false,
       {-0.0719448398, -0.14227762, -0.273638286, -0.109455875, 0, 0.509384024, 2.31035455,
        2.85772238, 6.49024232},
       {-0.0526646149, -0.088104106, -0.0412941543, 0.376289978, 0.5, 0.842599944, 1.09940111,
        1.08810411, 1.00824185}},
      {"Sigmoid",
       {},
       true,
       {0.01798621, 0.0474258732, 0.182425524, 0.437823499, 0.5, 0.679178699, 0.92414182,
        0.952574127, 0.998498818},
       {0.0176627062, 0.0451766597, 0.149146452, 0.246134083, 0.25, 0.217894994, 0.0701037165,
        0.0451766597, 0.00149892871}},
      {"Tanh",
       {},
       true,
       {-0.9993293, -0.995054754, -0.905148254, -0.244918662, 0, 0.635148952, 0.986614298,
        0.995054754, 0.999995479},
       {0.00134095068, 0.00986603717, 0.180706639, 0.940014849, 1, 0.596585808, 0.0265922267,
        0.00986603717, 9.04127676e-06}},
      {"Softplus",
       {},
       false,
       {0.0181499279, 0.0485873516, 0.201413278, 0.57593942, 0.693147181, 1.13687101, 2.57888973,
        3.04858735, 6.50150231},
       {0.01798621, 0.0474258732, 0.182425524, 0.437823499, 0.5, 0.679178699, 0.92414182,
        0.952574127, 0.998498818}},
      {"Softplus",
       {{"beta", 2.0}, {"threshold", 3.0}},
       false,
       {0.000167703186, 0.00123784257, 0.0242936758, 0.237038492, 0.34657359, 0.850706639, 2.5, 3,
        6.5},
       {0.00033535013, 0.00247262316, 0.0474258732, 0.377540669, 0.5, 0.817574476, 1, 1, 1}},
      {"Hardswish",
       {},
       false,
       {0, 0, -0.375, -0.114583333, 0, 0.46875, 2.29166667, 3, 6.5},
       {0, 0, 0, 0.416666667, 0.5, 0.75, 1.33333333, 1, 1}},
      {"Hardsigmoid",
       {},
       false,
       {0, 0, 0.25, 0.458333333, 0.5, 0.625, 0.916666667, 1, 1},
       {0, 0, 0.166666667, 0.166666667, 0.166666667, 0.166666667, 0.166666667, 0, 0}}};
  return all;
}

/// Returns random numbers that reach all pieces of the functions, and the points between pieces.
std::vector<float> wide_values(std::int64_t count) {
  std::vector<float> values = random_values(count, 5);
  for (float& value : values) value *= 9;
  const float special[] = {-3, 3, 0, 6, -100, 100, 2.9999998F};
  std::copy(std::begin(special), std::end(special), values.begin());
  return values;
}

TEST_CASE("activations: any shape, no parameters, in place where backward reads y") {
  for (const Case& c : cases()) {
    CAPTURE(c.type);
    const auto made = layer(c.type, c.options);
    CHECK(infer(*made, image(3, 4, 5)).text() == "3x4x5");
    CHECK(infer(*made, vector_of(7)).text() == "7");
    CHECK(made->is_in_place() == c.in_place);
    CHECK_FALSE(made->is_view());
    const ActivationShape in = vector_of(7);
    CHECK(made->params({&in, 1}).empty());
  }
  for (const ObjectTable* table : layer_kinds().table().alternatives) {
    const bool is_one = std::any_of(cases().begin(), cases().end(),
                                    [&](const Case& c) { return table->name == c.type; });
    if (is_one) CHECK(table->is_activation);
  }
}

TEST_CASE("activations: the summary names what is not the default") {
  CHECK(layer("LeakyReLU")->detail().empty());
  CHECK(layer("LeakyReLU", {{"negative_slope", 0.2}})->detail() == "negative_slope 0.2");
  CHECK(layer("GELU", {{"approximate", word("tanh")}})->detail() == "approximate tanh");
  CHECK(layer("Softplus", {{"beta", 2.0}, {"threshold", 3.0}})->detail() == "beta 2, threshold 3");
}

TEST_CASE("activations: PyTorch's numbers") {
  const std::vector<float> x(kPoints.begin(), kPoints.end()), ones(kPoints.size(), 1.0F);
  const auto count = static_cast<std::int64_t>(x.size());
  for (const Case& c : cases()) {
    CAPTURE(c.type);
    const auto made = layer(c.type, c.options);
    for (const std::string& name : backend_names()) {
      CAPTURE(name);
      const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
      const std::unique_ptr<Op> op = compile(*made, *backend, vector_of(count), 1);
      OpRunner runner(*backend, *op, x, {}, {}, count);
      check_close("y", runner.forward(), c.y, 1e-6);
      check_close("dx", runner.backward(ones).dx, c.slope, 1e-6);
    }
  }
}

TEST_CASE("activations: numbers and gradients") {
  for (const Case& c : cases()) {
    CAPTURE(c.type);
    const auto made = layer(c.type, c.options);
    check_layer(*made, image(3, 4, 5));
    check_on_backends(*made, vector_of(17), 1);

    const ActivationShape in = vector_of(257);
    const Maths maths = maths_of(*made, in, 1);
    const std::vector<float> x = wide_values(257), dy = random_values(257, 6);
    const Values want_y = maths.forward(to_double(x), {});
    const Values want_dx = maths.backward(to_double(x), {}, to_double(dy)).x;
    check_differences("wide dx", to_double(x), want_dx, [&](const Values& at) {
      const Values y = maths.forward(at, {});
      return std::inner_product(y.begin(), y.end(), dy.begin(), 0.0);
    });
    for (const std::string& name : backend_names()) {
      CAPTURE(name);
      const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
      const std::unique_ptr<Op> op = compile(*made, *backend, in, 1);
      // The largest number is 100, but errors are close to those of numbers around 1.
      OpRunner runner(*backend, *op, x, {}, {}, 257);
      check_close("wide y", runner.forward(), want_y, 1e-7);
      check_close("wide dx", runner.backward(dy).dx, want_dx, 2e-6);
      for (const bool training : {true, false}) {
        const std::unique_ptr<Op> again = compile(*made, *backend, in, 1, training);
        CHECK(again->in_place() == (c.in_place || !training));
        if (!again->in_place()) continue;
        OnDevice<float> at(*backend, x), gradient(*backend, dy);
        OpArgs args;
        args.x = args.y = at.ptr();
        again->forward(args);
        check_close("y in place", at.get(), want_y, 1e-7);
        if (!training) continue;
        args.dx = args.dy = gradient.ptr();
        again->backward(args);
        check_close("dx in place", gradient.get(), want_dx, 2e-6);
      }
    }
  }
}

TEST_CASE("activations: a NaN comes through in both directions") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const Case& c : cases()) {
    CAPTURE(c.type);
    for (const std::string& name : backend_names()) {
      CAPTURE(name);
      const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
      const std::unique_ptr<Op> op = compile(*layer(c.type, c.options), *backend, vector_of(2), 1);
      OpRunner runner(*backend, *op, {nan, 1}, {}, {}, 2);
      CHECK(std::isnan(runner.forward()[0]));
      CHECK(std::isnan(runner.backward({1, nan}).dx[1]));
    }
  }
}

TEST_CASE("activations in bf16: the reference at what bf16 holds, rounded once") {
  for (const Case& c : cases()) {
    CAPTURE(c.type);
    const auto made = layer(c.type, c.options);
    const std::int64_t count = 2049;
    const std::vector<Bf16> x = rounded(wide_values(count)), dy = rounded(random_values(count, 6));
    const ActivationShape in = vector_of(count);
    const Maths maths = maths_of(*made, in, 1);
    const Values at = to_double(widened(x)), by = to_double(widened(dy));
    for (const std::string& name : backend_names()) {
      CAPTURE(name);
      const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
      LayerContext context;
      context.batch = 1;
      context.in = {&in, 1};
      context.out = in;
      context.type = DType::bf16;
      const std::unique_ptr<Op> op = backend->make(made->describe(context));
      OnDevice<Bf16> x_at(*backend, x), dy_at(*backend, dy), y_at(*backend, x), dx_at(*backend, x);
      OpArgs args;
      args.x = x_at.ptr();
      args.y = y_at.ptr();
      args.dy = dy_at.ptr();
      args.dx = dx_at.ptr();
      op->forward(args);
      op->backward(args);
      check_rounded("y", widened(y_at.get()), maths.forward(at, {}));
      const Values dx = maths.backward(at, {}, by).x;
      // Backward of Sigmoid and Tanh reads y as rounded to bf16, and 1 - y is then off by half a
      // step of y.
      const bool reads_rounded = std::string(c.type) == "Sigmoid" || std::string(c.type) == "Tanh";
      if (reads_rounded) {
        check_close("dx", widened(dx_at.get()), dx, 0x1p-7);
      } else {
        check_rounded("dx", widened(dx_at.get()), dx);
      }
    }
  }
}

}  // namespace
}  // namespace dpt::testing
