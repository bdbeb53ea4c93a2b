#include "tests/engine/data/transform_case.h"

#include <doctest/doctest.h>

#include "engine/data/host_choices.h"
#include "engine/data/loader.h"
#include "engine/data/transform_kinds.h"
#include "kernels/image/colors.h"
#include "kernels/image/image_ops.h"
#include "tests/engine/data/support.h"

namespace dpt::data_test {
namespace {

using nlohmann::json;

FillColour colour_of(const json& params) {
  const auto fill = params.at("fill").get<std::vector<int>>();
  return {static_cast<std::uint8_t>(fill.at(0)), static_cast<std::uint8_t>(fill.at(1)),
          static_cast<std::uint8_t>(fill.at(2))};
}

Interpolation interpolation_of(const json& params) {
  return enum_of<Interpolation>(params.at("interpolation").get<std::string>()).value();
}

std::optional<double> optional_number(const json& params, const char* name) {
  if (!params.contains(name)) return std::nullopt;
  return params.at(name).get<double>();
}

Image rotated_case(const json& params, const Image& picture) {
  const json& center = params.at("center");
  const Point point = center.is_null() ? Point{} : Point{center.at(0), center.at(1)};
  return rotated(picture, params.at("angle"), interpolation_of(params), params.at("expand"),
                 center.is_null() ? nullptr : &point, colour_of(params));
}

Image affine_case(const json& params, const Image& picture) {
  AffineParams affine;
  affine.angle = params.at("angle");
  affine.translate_x = params.at("translate").at(0);
  affine.translate_y = params.at("translate").at(1);
  affine.scale = params.at("scale");
  affine.shear_x = params.at("shear").at(0);
  affine.shear_y = params.at("shear").at(1);
  const json& center = params.at("center");
  const Point point = center.is_null() ? Point{static_cast<double>(picture.width) * 0.5,
                                               static_cast<double>(picture.height) * 0.5}
                                       : Point{center.at(0), center.at(1)};
  return warped(picture, affine_matrix(affine, point), picture.height, picture.width,
                interpolation_of(params), colour_of(params));
}

Image padded_case(const json& params, const Image& picture) {
  const json& sides = params.at("padding");
  return padded(picture, {sides.at(0), sides.at(1), sides.at(2), sides.at(3)},
                enum_of<PaddingMode>(params.at("padding_mode").get<std::string>()).value(),
                colour_of(params));
}

JitterParams jitter_of(const json& params) {
  JitterParams jitter;
  jitter.order = params.at("order").get<std::array<int, 4>>();
  jitter.brightness = optional_number(params, "brightness");
  jitter.contrast = optional_number(params, "contrast");
  jitter.saturation = optional_number(params, "saturation");
  jitter.hue = optional_number(params, "hue");
  return jitter;
}

void run_trivial(const json& params, Image& image) {
  TrivialParams trivial;
  trivial.operation = static_cast<TrivialOperation>(params.at("operation").get<int>());
  trivial.magnitude =
      trivial_magnitude(trivial.operation, params.at("bin"), params.at("bins").get<std::int64_t>());
  if (params.at("negative")) trivial.magnitude = -trivial.magnitude;
  apply_trivial(trivial, interpolation_of(params), colour_of(params), image);
}

Image blurred_case(const json& params, const Image& picture) {
  const json& kernel = params.at("kernel_size");
  return gaussian_blurred(picture, {kernel.at(1), kernel.at(0)}, params.at("sigma").at(0),
                          params.at("sigma").at(1));
}

/// Runs an operation that takes one number or none.
void run_in_place(const std::string& operation, double factor, Image& image) {
  if (operation == "flip_horizontally") return flip_horizontally(image);
  if (operation == "flip_vertically") return flip_vertically(image);
  if (operation == "grayscale") return to_grayscale(image);
  if (operation == "autocontrast") return autocontrast(image);
  if (operation == "equalize") return equalize(image);
  if (operation == "brightness") return adjust_brightness(image, factor);
  if (operation == "contrast") return adjust_contrast(image, factor);
  if (operation == "saturation") return adjust_saturation(image, factor);
  if (operation == "sharpness") return adjust_sharpness(image, factor);
  if (operation == "hue") return adjust_hue(image, factor);
  if (operation == "posterize") return posterize(image, static_cast<int>(factor));
  if (operation == "solarize") return solarize(image, factor);
  FAIL("no operation is called " << operation);
}

Image transformed(TransformKind kind, const Fields& fields, Image picture) {
  const auto transform = kind.make(variant(transform_kinds().table(), kind.table->name, fields));
  DrawStream draws(0, 0, 0, 0);
  transform->apply(picture, draws);
  return picture;
}

Image resized_case(const json& params, const Image& picture) {
  return transformed(resize_transform(),
                     {{"size", params.at("size").get<std::vector<std::int64_t>>()},
                      {"interpolation", params.at("interpolation").get<std::string>()}},
                     picture);
}

Image letterbox_case(const json& params, const Image& picture) {
  auto fill = params.at("fill").get<std::vector<double>>();
  if (picture.channels == 1) fill.resize(1);
  const json& size = params.at("size");
  return transformed(letterbox_transform(),
                     {{"size", Size2{size.at(0), size.at(1)}}, {"fill", fill}}, picture);
}

unsigned digit(char c) {
  return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
}

}  // namespace

Image image_of(const json& value) {
  const json& size = value.at("size");
  Image image{size.at(0), size.at(1), size.at(2), {}};
  const auto& text = value.at("pixels").get_ref<const std::string&>();
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    image.pixels.push_back(static_cast<std::uint8_t>(digit(text[i]) * 16 + digit(text[i + 1])));
  }
  REQUIRE(static_cast<std::int64_t>(image.pixels.size()) ==
          image.height * image.width * image.channels);
  return image;
}

json json_of(const Image& image) {
  constexpr const char* kDigits = "0123456789abcdef";
  std::string text;
  for (const std::uint8_t pixel : image.pixels) {
    text += kDigits[pixel / 16];
    text += kDigits[pixel % 16];
  }
  return {{"size", {image.height, image.width, image.channels}}, {"pixels", std::move(text)}};
}

Image run_case(const json& test_case, const Image& picture) {
  const std::string operation = test_case.at("operation");
  const json& params = test_case.at("params");
  if (operation == "rotate") return rotated_case(params, picture);
  if (operation == "affine") return affine_case(params, picture);
  if (operation == "pad") return padded_case(params, picture);
  if (operation == "resize") return resized_case(params, picture);
  if (operation == "letterbox") return letterbox_case(params, picture);
  if (operation == "blur") return blurred_case(params, picture);
  Image image = picture;
  if (operation == "jitter") {
    apply_jitter(jitter_of(params), image);
  } else if (operation == "trivial") {
    run_trivial(params, image);
  } else {
    run_in_place(operation, params.value("factor", 0.0), image);
  }
  return image;
}

}  // namespace dpt::data_test
