#include "engine/layers/activation_shape.h"
#include "kernels/devices.h"
#include "tests/support/bf16_case.h"

namespace dpt::testing {
namespace {

TEST_CASE("Concat: channels side by side, of one height and width") {
  const auto concat = layer("Concat");
  CHECK(concat->input_count().least == 2);
  CHECK(concat->input_count().most == kMaxInputs);
  CHECK(concat->infer(std::vector{image(3, 4, 5), image(1, 4, 5), image(2, 4, 5)}).text() ==
        "6x4x5");
  CHECK(concat->infer(std::vector{vector_of(3), vector_of(4)}).text() == "7");
  CHECK_FALSE(concat->is_view());
  CHECK_FALSE(concat->is_in_place());
  const std::vector<ActivationShape> in = {image(2, 1, 2), image(1, 1, 2)};
  CHECK(concat->params(in).empty());
  CHECK(maths_of(*concat, in, 1).forward({1, 2, 3, 4, 5, 6}, {}) == Values{1, 2, 5, 3, 4, 6});

  // Flattened images: torch.cat of the vectors equals the concatenated images, flattened.
  const ActivationShape flat =
      concat->infer(std::vector<ActivationShape>{{{4, 5, 3}, true}, {{4, 5, 2}, true}});
  CHECK(flat.flat);
  CHECK(flat.shape == SampleShape{4, 5, 5});
}

TEST_CASE("Concat: inputs of other sizes are refused") {
  const auto concat = layer("Concat");
  const auto error = [&](const std::vector<ActivationShape>& in) {
    return error_text([&] { concat->infer(in); });
  };
  CHECK(error({image(3, 4, 5), image(1, 4, 5), image(3, 2, 5)}) ==
        "expected inputs of the same height and width, found 3x4x5 as input 1 and 3x2x5 as input 3 "
        "(C x H x W); a stride, a pooling or Upsample changes the size");
  CHECK(error({vector_of(4), image(3, 1, 1)}) ==
        "expected inputs of the same height and width, found 4 as input 1 and 3x1x1 as input 2; "
        "flatten the image (C x H x W) as well, or neither input");
  CHECK(error({{{4, 5, 3}, true}, image(3, 4, 5)}) ==
        "expected inputs of the same height and width, found 60 as input 1 and 3x4x5 as input 2; "
        "flatten the image (C x H x W) as well, or neither input");
}

TEST_CASE("Concat: flattened images of different sizes have torch.cat's order of features") {
  const auto concat = layer("Concat");
  const ActivationShape wide{{1, 2, 2}, true}, tall{{2, 1, 3}, true};
  const std::vector<ActivationShape> in = {wide, vector_of(1), tall};
  const ActivationShape out = concat->infer(in);
  CHECK(out.flat);
  CHECK(out.shape == SampleShape{1, 1, 11});
  // The samples have the order (H,W,C): two channels (0 and 10), one value, and three channels (20,
  // 30 and 40), pixel by pixel.
  CHECK(maths_of(*concat, in, 1).forward({0, 10, 1, 11, 5, 20, 30, 40, 21, 31, 41}, {}) ==
        Values{0, 1, 10, 11, 5, 20, 21, 30, 31, 40, 41});
  for (const auto& shapes :
       {in, std::vector<ActivationShape>{{{4, 5, 3}, true}, {{2, 3, 8}, true}, {{1, 1, 7}, true}},
        std::vector<ActivationShape>{vector_of(4), {{9, 9, 1}, true}}}) {
    check_layer(*concat, shapes, 3);
    check_in_bf16(*concat, shapes, 3);
  }
  check_on_backends(*concat, std::vector<ActivationShape>{{{9, 9, 16}, true}, {{5, 7, 33}, true}},
                    70);
}

TEST_CASE("Concat: numbers and gradients, of as many channels as fill a vector, and of others") {
  const auto concat = layer("Concat");
  check_layer(*concat, {image(3, 4, 5), image(1, 4, 5), image(2, 4, 5)});
  check_layer(*concat, {image(4, 3, 2), image(8, 3, 2)});
  check_layer(*concat, {vector_of(5), vector_of(5)}, 7);
  check_on_backends(*concat, std::vector<ActivationShape>(kMaxInputs, image(2, 9, 9)), 2);
  check_in_bf16(*concat, {image(3, 4, 5), image(1, 4, 5)}, 3);
  check_in_bf16(*concat, {image(8, 4, 5), image(16, 4, 5)}, 3);
}

TEST_CASE("Multiply: inputs of one shape, or one of 1x1 pixels") {
  const auto multiply = layer("Multiply");
  CHECK(multiply->input_count().least == 2);
  CHECK(multiply->input_count().most == 2);
  CHECK(multiply->infer(std::vector{image(3, 4, 5), image(3, 4, 5)}).text() == "3x4x5");
  CHECK(multiply->infer(std::vector{image(3, 4, 5), image(3, 1, 1)}).text() == "3x4x5");
  CHECK(multiply->infer(std::vector{image(3, 1, 1), image(3, 4, 5)}).text() == "3x4x5");
  CHECK(multiply->infer(std::vector{vector_of(4), vector_of(4)}).text() == "4");
  CHECK(
      maths_of(*multiply, {image(2, 1, 2), image(2, 1, 1)}, 1).forward({1, 2, 3, 4, 10, 100}, {}) ==
      Values{10, 200, 30, 400});
  const auto error = [&](const std::vector<ActivationShape>& in) {
    return error_text([&] { multiply->infer(in); });
  };
  const std::string expected =
      "expected two inputs of the same shape, or images (C x H x W) with the same number of "
      "channels, one of them with 1x1 pixels, found ";
  CHECK(error({image(3, 4, 5), image(2, 1, 1)}) == expected + "3x4x5 and 2x1x1");
  CHECK(error({image(3, 4, 5), image(3, 4, 1)}) == expected + "3x4x5 and 3x4x1");
  CHECK(error({image(3, 4, 5), vector_of(3)}) == expected + "3x4x5 and a vector of 3");
  CHECK(error({vector_of(60), {{4, 5, 3}, true}}) ==
        "expected inputs of the same shape, found vectors of 60 features in different orders: one "
        "in the order of an image's pixels, the other not; multiply the images before the Flatten, "
        "or put a Linear after it");
}

TEST_CASE("Multiply: numbers and gradients") {
  const auto multiply = layer("Multiply");
  check_layer(*multiply, {image(3, 4, 5), image(3, 4, 5)});
  check_layer(*multiply, {image(3, 4, 5), image(3, 1, 1)});
  check_layer(*multiply, {image(8, 1, 1), image(8, 3, 2)});
  check_layer(*multiply, {image(3, 1, 1), image(3, 1, 1)});
  check_layer(*multiply, {vector_of(17), vector_of(17)}, 1);
  // More channels and pixels than a kernel sums at once.
  check_on_backends(*multiply, std::vector{image(70, 9, 8), image(70, 1, 1)}, 2);
  check_in_bf16(*multiply, {image(16, 4, 5), image(16, 1, 1)}, 3);
  check_in_bf16(*multiply, {image(3, 4, 5), image(3, 4, 5)}, 3);
}

TEST_CASE("Concat and Multiply: gradients that nobody asks for are left alone") {
  for (const std::string& name : backend_names()) {
    CAPTURE(name);
    const std::unique_ptr<Backend> backend = make_backend(parse_device(name));
    for (const char* type : {"Concat", "Multiply"}) {
      CAPTURE(type);
      const std::vector<ActivationShape> in = {image(4, 3, 3), image(4, 3, 3)};
      const auto made = layer(type);
      const std::unique_ptr<Op> op = compile(*made, *backend, in, 1);
      const std::int64_t count = made->infer(in).elements();
      OpRunner runner(*backend, *op, random_values(72, 1), {}, {}, count, 2);
      runner.forward();
      const std::vector<float> both = runner.backward(random_values(count, 2)).dx;
      for (const bool first : {true, false}) {
        OnDevice<float> dx(*backend, std::vector<float>(72, 7.0F));
        OpArgs args = runner.args();
        args.dx = first ? dx.ptr() : DevPtr{};
        args.more_dx[0] = first ? DevPtr{} : dx.ptr() + 36 * sizeof(float);
        op->backward(args);
        const std::vector<float> got = dx.get();
        for (std::size_t i = 0; i < 72; ++i) CHECK(got[i] == ((i < 36) == first ? both[i] : 7.0F));
      }
    }
  }
}

}  // namespace
}  // namespace dpt::testing
