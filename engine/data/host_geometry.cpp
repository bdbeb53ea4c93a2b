// Pad, RandomRotation and RandomAffine.
#include <cmath>

#include "engine/data/host_choices.h"
#include "engine/data/host_options.h"
#include "engine/data/transform_kinds.h"
#include "kernels/base/error.h"

namespace dpt {

AffineParams draw_affine(const AffineRanges& ranges, Size2 image, DrawStream& draws) {
  AffineParams params;
  params.angle = draw_uniform(ranges.degrees, draws);
  if (ranges.translate) {
    // Round like Python's round(): halves to the nearest even number.
    const auto shift = [&](double fraction, std::int64_t size) {
      const double most = fraction * static_cast<double>(size);
      return static_cast<std::int64_t>(std::nearbyint(draws.uniform(-most, most)));
    };
    params.translate_x = shift(ranges.translate->x, image.w);
    params.translate_y = shift(ranges.translate->y, image.h);
  }
  if (ranges.scale) params.scale = draw_uniform(*ranges.scale, draws);
  if (ranges.shear_x) params.shear_x = draw_uniform(*ranges.shear_x, draws);
  if (ranges.shear_y) params.shear_y = draw_uniform(*ranges.shear_y, draws);
  return params;
}

namespace {

using Numbers = std::vector<double>;

struct PadOptions {
  std::vector<std::int64_t> padding;
  Numbers fill = {0};
  PaddingMode padding_mode = PaddingMode::constant;
};

struct RandomRotationOptions {
  Numbers degrees;
  Interpolation interpolation = Interpolation::nearest;
  bool expand = false;
  std::optional<Numbers> center;
  Numbers fill = {0};
};

struct RandomAffineOptions {
  Numbers degrees;
  std::optional<Numbers> translate, scale, shear;
  Interpolation interpolation = Interpolation::nearest;
  Numbers fill = {0};
  std::optional<Numbers> center;
};

constexpr const char* kFillDoc =
    "Value of the pixels outside the image, from 0 to 255: one for all channels, or [red, green, "
    "blue].";
constexpr const char* kInterpolationDoc =
    "Interpolation between pixels: the nearest pixel, or bilinear.";
constexpr const char* kCenterDoc =
    "The fixed point [x, y] of the transform, in pixels from the upper left corner; null is the "
    "centre of the image.";

const ObjectTable& pad_table() {
  static const ObjectTable table = object_table<PadOptions>(
      "Pad", "Adds pixels on the sides of the image.",
      {field("padding", &PadOptions::padding,
             "Pixels: one number for all sides, [left and right, top and bottom], or [left, top, "
             "right, bottom].")
           .required()
           .range(0, 16384)
           .items(1, 4)
           .or_one(),
       field("fill", &PadOptions::fill, kFillDoc).range(0, 255).items(1, 3).or_one(),
       field("padding_mode", &PadOptions::padding_mode,
             "constant: `fill`; edge: the pixel at the edge; reflect: the mirrored image without "
             "its edge pixels; symmetric: with them.")});
  return table;
}

const ObjectTable& random_rotation_table() {
  static const ObjectTable table = object_table<RandomRotationOptions>(
      "RandomRotation", "Rotates the image by a random angle.",
      {field("degrees", &RandomRotationOptions::degrees,
             "The angle is uniform in [minimum, maximum], anticlockwise; one number stands for "
             "[-degrees, degrees].")
           .required()
           .range(-360, 360)
           .items(1, 2)
           .or_one(),
       field("interpolation", &RandomRotationOptions::interpolation, kInterpolationDoc),
       field("expand", &RandomRotationOptions::expand,
             "Enlarge the image so that it holds the whole rotated image. Sizes then differ from "
             "image to image; a Resize or a crop must follow."),
       field("center", &RandomRotationOptions::center, kCenterDoc).range(-65536, 65536).items(2, 2),
       field("fill", &RandomRotationOptions::fill, kFillDoc).range(0, 255).items(1, 3).or_one()});
  return table;
}

const ObjectTable& random_affine_table() {
  static const ObjectTable table = object_table<RandomAffineOptions>(
      "RandomAffine", "Rotates, moves, scales and shears the image at random.",
      {field("degrees", &RandomAffineOptions::degrees,
             "The angle is uniform in [minimum, maximum], clockwise; one number stands for "
             "[-degrees, degrees]. 0: no rotation.")
           .required()
           .range(-360, 360)
           .items(1, 2)
           .or_one(),
       field("translate", &RandomAffineOptions::translate,
             "Maximum shift [horizontal, vertical], as fractions of the image's width and height; "
             "null: no shift.")
           .range(0, 1)
           .items(2, 2),
       field("scale", &RandomAffineOptions::scale,
             "The factor is uniform in [minimum, maximum]; null: 1.")
           .range(0.001, 1000)
           .items(2, 2),
       field("shear", &RandomAffineOptions::shear,
             "Angle of the shear in degrees. [minimum, maximum]: uniform, along x; one number "
             "stands for [-shear, shear]. [minimum x, maximum x, minimum y, maximum y]: along x "
             "and y. null: no shear.")
           .range(-89, 89)
           .items(1, 4)
           .or_one(),
       field("interpolation", &RandomAffineOptions::interpolation, kInterpolationDoc),
       field("fill", &RandomAffineOptions::fill, kFillDoc).range(0, 255).items(1, 3).or_one(),
       field("center", &RandomAffineOptions::center, kCenterDoc).range(-65536, 65536).items(2, 2)});
  return table;
}

class Pad final : public HostTransform {
 public:
  explicit Pad(const Variant& transform)
      : padding_(sides(transform)),
        mode_(transform.as<PadOptions>().padding_mode),
        fill_(transform, transform.as<PadOptions>().fill) {}
  std::optional<Size2> size_after(std::optional<Size2> before) const override {
    if (!before) return std::nullopt;
    return Size2{before->h + padding_.top + padding_.bottom,
                 before->w + padding_.left + padding_.right};
  }
  void apply(Image& image, DrawStream&) const override {
    replace_image(image, padded(image, padding_, mode_, fill_.of(image)));
  }

 private:
  static Padding sides(const Variant& transform) {
    const std::vector<std::int64_t>& given = transform.as<PadOptions>().padding;
    switch (given.size()) {
      case 1:
        return {given[0], given[0], given[0], given[0]};
      case 2:
        return {given[0], given[1], given[0], given[1]};
      case 4:
        return {given[0], given[1], given[2], given[3]};
      default:
        fail(ErrorKind::usage, "{}: padding: expected 1, 2 or 4 numbers, found {}",
             place_of(transform), given.size());
    }
  }

  Padding padding_;
  PaddingMode mode_;
  Fill fill_;
};

class RandomRotation final : public HostTransform {
 public:
  explicit RandomRotation(const Variant& transform)
      : options_(transform.as<RandomRotationOptions>()),
        degrees_(range_of(transform, "degrees", options_.degrees)),
        center_(point_of(options_.center)),
        fill_(transform, options_.fill) {}
  std::optional<Size2> size_after(std::optional<Size2> before) const override {
    return options_.expand ? std::nullopt : before;
  }
  void apply(Image& image, DrawStream& draws) const override {
    replace_image(image, rotated(image, draw_uniform(degrees_, draws), options_.interpolation,
                                 options_.expand, center_ ? &*center_ : nullptr, fill_.of(image)));
  }

 private:
  RandomRotationOptions options_;
  Interval degrees_;
  std::optional<Point> center_;
  Fill fill_;
};

class RandomAffine final : public HostTransform {
 public:
  explicit RandomAffine(const Variant& transform)
      : ranges_(ranges_of(transform)),
        interpolation_(transform.as<RandomAffineOptions>().interpolation),
        center_(point_of(transform.as<RandomAffineOptions>().center)),
        fill_(transform, transform.as<RandomAffineOptions>().fill) {}
  void apply(Image& image, DrawStream& draws) const override {
    const AffineParams params = draw_affine(ranges_, {image.height, image.width}, draws);
    const Point middle{static_cast<double>(image.width) * 0.5,
                       static_cast<double>(image.height) * 0.5};
    replace_image(image, warped(image, affine_matrix(params, center_.value_or(middle)),
                                image.height, image.width, interpolation_, fill_.of(image)));
  }

 private:
  static AffineRanges ranges_of(const Variant& transform) {
    const auto& options = transform.as<RandomAffineOptions>();
    AffineRanges ranges;
    ranges.degrees = range_of(transform, "degrees", options.degrees);
    ranges.translate = point_of(options.translate);
    if (options.scale) ranges.scale = range_of(transform, "scale", *options.scale);
    if (options.shear) {
      if (options.shear->size() == 3) {
        fail(ErrorKind::usage, "{}: shear: expected 1, 2 or 4 numbers, found 3: {}",
             place_of(transform), numbers_text(*options.shear));
      }
      ranges.shear_x = range_of(transform, "shear", *options.shear);
      if (options.shear->size() == 4) {
        ranges.shear_y = range_of(transform, "shear", *options.shear, 1);
      }
    }
    return ranges;
  }

  AffineRanges ranges_;
  Interpolation interpolation_;
  std::optional<Point> center_;
  Fill fill_;
};

template <class T>
std::unique_ptr<HostTransform> make_geometry(const Variant& transform) {
  return std::make_unique<T>(transform);
}

}  // namespace

TransformKind pad_transform() {
  return {&pad_table(), make_geometry<Pad>};
}

TransformKind random_rotation_transform() {
  return {&random_rotation_table(), make_geometry<RandomRotation>, std::nullopt, true};
}

TransformKind random_affine_transform() {
  return {&random_affine_table(), make_geometry<RandomAffine>, std::nullopt, true};
}

}  // namespace dpt
