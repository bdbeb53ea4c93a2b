#include <cmath>

#include "engine/layers/activation_shape.h"
#include "engine/layers/param_spec.h"
#include "kernels/devices.h"
#include "tests/kernels/bf16_values.h"
#include "tests/support/layer_case.h"
#include "tests/support/skip.h"

namespace dpt::testing {
namespace {

Options transposed(std::int64_t channels, Size2 kernel, Options more = {}) {
  Options all = {{"out_channels", integer(channels)}, {"kernel_size", kernel}};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
std::unique_ptr<Layer> made(std::int64_t channels, Size2 kernel, Options more = {}) {
  return layer("ConvTranspose2d", transposed(channels, kernel, std::move(more)));
}

TEST_CASE("ConvTranspose2d: output shapes are torch.nn.ConvTranspose2d's") {
  const auto out = [](const ActivationShape& in, std::int64_t channels, Size2 kernel,
                      Options more = {}) {
    return infer(*made(channels, kernel, std::move(more)), in).text();
  };
  CHECK(out(image(1, 1, 1), 3, {4, 4}) == "3x4x4");
  CHECK(out(image(3, 4, 4), 5, {2, 2}, {{"stride", square(2)}}) == "5x8x8");
  CHECK(out(image(3, 4, 4), 5, {3, 3},
            {{"stride", square(2)}, {"padding", square(1)}, {"output_padding", square(1)}}) ==
        "5x8x8");
  CHECK(out(image(2, 4, 5), 4, {3, 2}, {{"stride", Size2{2, 3}}, {"padding", Size2{1, 0}}}) ==
        "4x7x14");
  CHECK(out(image(1, 4, 4), 2, {3, 3}, {{"dilation", square(2)}}) == "2x8x8");
  CHECK(out(image(2, 3, 3), 2, {3, 3},
            {{"dilation", square(3)}, {"stride", square(3)}, {"output_padding", square(2)}}) ==
        "2x15x15");
}

TEST_CASE("ConvTranspose2d: parameters have PyTorch's shapes and fans") {
  const ActivationShape in = image(6, 8, 8);
  const auto params = made(4, {3, 5}, {{"groups", integer(2)}})->params({&in, 1});
  REQUIRE(params.size() == 2);
  CHECK(params[0].suffix == "weight");
  CHECK(params[0].file_shape == std::vector<std::int64_t>{6, 2, 3, 5});
  CHECK(params[0].layout == ParamLayout::ohwi);
  // torch.nn.init takes the second dimension for the inputs.
  CHECK(params[0].fan_in == 30);
  CHECK(params[0].fan_out == 90);
  CHECK(params[1].suffix == "bias");
  CHECK(params[1].file_shape == std::vector<std::int64_t>{4});
  CHECK(params[1].fan_in == 30);
  CHECK(made(4, {3, 5}, {{"bias", false}})->params({&in, 1}).size() == 1);
}

TEST_CASE("ConvTranspose2d: PyTorch's numbers") {
  const auto plain = made(1, {2, 2});
  CHECK(maths_of(*plain, image(1, 2, 2), 1).forward({1, 2, 3, 4}, {{1, 10, 100, 1000}, {0.5}}) ==
        Values{1.5, 12.5, 20.5, 103.5, 1234.5, 2040.5, 300.5, 3400.5, 4000.5});
  // Results of torch.nn.functional.conv_transpose2d, as (H,W,C) with weights (in,H,W,out).
  const auto strided =
      made(3, {2, 2},
           {{"stride", Size2{2, 1}}, {"padding", square(1)}, {"output_padding", Size2{1, 0}}});
  const ActivationShape in = image(2, 2, 2);
  const Maths maths = maths_of(*strided, in, 1);
  const std::vector<float> x = {1, -2, 0, -1, -3, 3, -1, 0};
  const std::vector<float> weight = {1, -2, 1,  2,  2, -1, -1, -1, 1,  -3, 1, -1,
                                     3, 1,  -2, -1, 1, 1,  1,  -2, -2, -1, 0, -3};
  const std::vector<float> bias = {1, -2, 3};
  const std::vector<float> dy = {1, -2, -1, -2, 0, 1, -2, 2, 1};
  const Values y = {-1, 1, 10, -9, -3, 8, 8, -4, -4};
  const Values dx = {-4, 2, 0, 7, 2, 2, 0, -16};
  const Values dweight = {2, 0, -1, 6,  0, -3, 2,  -2, -1, 7,  -8, -4,
                          0, 0, 0,  -6, 0, 3,  -1, 2,  1,  -8, 10, 5};
  const Values dbias = {-3, 0, 1};
  CHECK(maths.forward(to_double(x), to_double({weight, bias})) == y);
  const Derivatives g = maths.backward(to_double(x), to_double({weight, bias}), to_double(dy));
  CHECK(g.x == dx);
  CHECK(g.params[0] == dweight);
  CHECK(g.params[1] == dbias);
  for (const std::string& name : backend_names()) {
    CAPTURE(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    const std::unique_ptr<Op> op = compile(*strided, *backend, in, 1);
    OpRunner runner(*backend, *op, x, weight, bias, static_cast<std::int64_t>(maths.y));
    check_close("y", runner.forward(), y);
    const OpResult result = runner.backward(dy);
    check_close("dx", result.dx, dx);
    check_close("dweight", result.dweight, dweight);
    check_close("dbias", result.dbias, dbias);
  }
}

TEST_CASE("ConvTranspose2d: multiply-adds count as two") {
  const ActivationShape in = image(20, 13, 13);
  const auto layer = made(50, {5, 5}, {{"groups", integer(10)}});
  const ActivationShape out = infer(*layer, in);
  CHECK(layer->forward_flops({&in, 1}, out) == 2.0 * 13 * 13 * 20 * 25 * 5);
  CHECK(layer->backward_flops({&in, 1}, out, true) == 4.0 * 13 * 13 * 20 * 25 * 5);
}

TEST_CASE("ConvTranspose2d: error texts") {
  CHECK(infer_error(*made(4, {3, 3}), vector_of(80)) ==
        "expected an image (C x H x W) as input, found a vector of 80 features: this layer comes "
        "after a Flatten or Linear; move it before the Flatten");
  CHECK(infer_error(*made(4, {3, 2}, {{"padding", Size2{3, 1}}}), image(5, 4, 4)) ==
        "padding 3x1 leaves no output: the windows cover 6x5 pixels for an input of 5x4x4 (C x H x "
        "W), of which the padding removes 6x2; make the padding smaller");
  CHECK(infer_error(*made(6, {3, 3}, {{"groups", integer(4)}}), image(8, 9, 9)) ==
        "groups 4 must divide both the channels of its input, 8, and out_channels, 6");
  const auto message = [](Options more) {
    const Variant variant =
        dpt::testing::variant("ConvTranspose2d", transposed(4, {3, 3}, std::move(more)));
    return variant.table->check(variant.options.get());
  };
  CHECK(message({}).empty());
  CHECK(message({{"output_padding", square(1)}}) ==
        "output_padding 1 must be smaller than the stride, 1: it chooses among the sizes that a "
        "convolution with that stride maps to the same size");
  CHECK(message({{"output_padding", Size2{1, 2}}, {"stride", Size2{3, 2}}}) ==
        "output_padding 1x2 must be smaller than the stride, 3x2: it chooses among the sizes that "
        "a convolution with that stride maps to the same size");
  CHECK(message({{"output_padding", Size2{2, 1}}, {"stride", Size2{3, 2}}}).empty());
  CHECK(message({{"bias", false}, {"bias_init", word("normal")}}) ==
        "bias_init has no effect with bias: false");
}

TEST_CASE("ConvTranspose2d: numbers and gradients") {
  check_layer(*made(4, {3, 3}), image(2, 4, 5));
  check_layer(*made(3, {2, 2}, {{"stride", square(2)}}), image(4, 3, 3));
  check_layer(*made(5, {3, 2}, {{"stride", Size2{2, 3}}, {"padding", Size2{1, 0}}}),
              image(1, 4, 3));
  // Pixels at the end that no window covers contain only the bias.
  check_layer(
      *made(3, {2, 3},
            {{"stride", square(4)}, {"output_padding", Size2{3, 2}}, {"padding", square(1)}}),
      image(2, 3, 3));
  check_layer(
      *made(2, {3, 3},
            {{"dilation", square(3)}, {"stride", square(2)}, {"output_padding", square(1)}}),
      image(2, 3, 2));
  check_layer(
      *made(
          4, {3, 3},
          {{"groups", integer(2)}, {"padding", square(1)}, {"stride", square(2)}, {"bias", false}}),
      image(6, 4, 3));
  // Padding is as large as the kernel: windows at the edges lie outside the output.
  check_layer(*made(2, {2, 2}, {{"padding", square(2)}, {"stride", square(2)}}), image(2, 4, 4));
  // The channels fill whole vectors.
  check_on_backends(*made(16, {4, 4}, {{"stride", square(2)}, {"padding", square(1)}}),
                    image(32, 5, 5), 2);
}

/// Returns whole numbers from -2 to 2: bf16 holds the sums of a few of their products exactly.
std::vector<float> small_numbers(std::size_t count, std::uint64_t seed) {
  std::vector<float> values = random_values(static_cast<std::int64_t>(count), seed);
  for (float& value : values) value = std::nearbyint(2 * value);
  return values;
}

TEST_CASE("ConvTranspose2d: in bf16, exactly where bf16 holds the results") {
  const auto layer = made(8, {3, 3}, {{"stride", square(2)}, {"padding", square(1)}});
  const ActivationShape in = image(16, 4, 5);
  const Maths maths = maths_of(*layer, in, 2);
  const std::vector<float> x = small_numbers(maths.x, 1),
                           weight = small_numbers(maths.params[0], 2),
                           bias = small_numbers(maths.params[1], 3), dy = small_numbers(maths.y, 4);
  const Values y = maths.forward(to_double(x), to_double({weight, bias}));
  const Derivatives want = maths.backward(to_double(x), to_double({weight, bias}), to_double(dy));
  for (const std::string& name : backend_names()) {
    if (name.starts_with("cpu") && !cpu_info().bf16) {
      skip_test("this processor has neither AVX512-BF16 nor AMX");
      continue;
    }
    CAPTURE(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    LayerContext context;
    context.batch = 2;
    context.in = {&in, 1};
    context.out = infer(*layer, in);
    context.type = DType::bf16;
    const std::unique_ptr<Op> op = backend->make(layer->describe(context));
    OnDevice<Bf16> x_at(*backend, rounded(x)), dx_at(*backend, rounded(x));
    OnDevice<Bf16> y_at(*backend, rounded(dy)), dy_at(*backend, rounded(dy));
    OnDevice<Bf16> weight_at(*backend, rounded(weight)), bias16_at(*backend, rounded(bias));
    OnDevice<float> bias_at(*backend, bias), dweight_at(*backend, weight), dbias_at(*backend, bias);
    OnDevice<float> scratch(*backend, std::vector<float>(op->scratch_bytes() / sizeof(float) + 1));
    OpArgs args;
    args.x = x_at.ptr();
    args.dx = dx_at.ptr();
    args.y = y_at.ptr();
    args.dy = dy_at.ptr();
    args.params[WeightAndBias::kWeight] = {{}, weight_at.ptr(), dweight_at.ptr()};
    args.params[WeightAndBias::kBias] = {bias_at.ptr(), bias16_at.ptr(), dbias_at.ptr()};
    args.scratch = scratch.ptr();
    op->forward(args);
    op->backward(args);
    scratch.check_guard();
    CHECK(to_double(widened(y_at.get())) == y);
    CHECK(to_double(widened(dx_at.get())) == want.x);
    CHECK(to_double(dweight_at.get()) == want.params[0]);
    CHECK(to_double(dbias_at.get()) == want.params[1]);
  }
}

TEST_CASE("ConvTranspose2d: no slow reference loops on the CPU, on one thread and on two") {
  for (const char* device : {"cpu", "cpu:2"}) {
    const std::unique_ptr<Backend> backend = make_backend(parse_device(device));
    for (const std::int64_t channels : {3, 20, 64}) {
      const auto op = compile(*made(channels, {2, 2}, {{"stride", square(2)}}), *backend,
                              image(2 * channels, 8, 8), 4);
      INFO(op->implementation());
      CHECK(op->implementation().find("ref") == std::string::npos);
    }
  }
}

TEST_CASE("ConvTranspose2d: the short text for the summary") {
  CHECK(made(4, {2, 2}, {{"stride", square(2)}})->detail() == "2x2, stride 2");
  CHECK(made(4, {3, 5},
             {{"stride", square(2)},
              {"padding", square(1)},
              {"output_padding", Size2{1, 0}},
              {"dilation", square(2)},
              {"groups", integer(2)},
              {"bias", false}})
            ->detail() ==
        "3x5, stride 2, padding 1, output padding 1x0, dilation 2, groups 2, no bias");
}

}  // namespace
}  // namespace dpt::testing
