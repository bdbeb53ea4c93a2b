// Resize and crops on the host. Sources of the formulas: torchvision,
// transforms/v2/functional/_geometry.py and transforms/v2/_geometry.py.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <utility>

#include "engine/data/host_options.h"
#include "engine/data/transform_kinds.h"
#include "kernels/base/error.h"
#include "kernels/image/resize.h"

namespace dpt {
namespace {

/// Rounds like Python's round(): halves to the nearest even number.
std::int64_t rounded_to_even(double value) {
  return static_cast<std::int64_t>(std::nearbyint(value));
}

/// Returns the crop of `image` at (top, left); its pixels outside the image are black.
Image padded_crop(const Image& image, std::int64_t top, std::int64_t left, Size2 size) {
  Image result{size.h, size.w, image.channels, {}};
  result.pixels.resize(static_cast<std::size_t>(size.h * size.w * image.channels));
  const std::int64_t first = std::clamp<std::int64_t>(-left, 0, size.w);
  const std::int64_t end = std::clamp<std::int64_t>(image.width - left, first, size.w);
  for (std::int64_t y = 0; y < size.h; ++y) {
    if (top + y < 0 || top + y >= image.height || end == first) continue;
    const std::int64_t from = ((top + y) * image.width + left + first) * image.channels;
    std::memcpy(result.pixels.data() + (y * size.w + first) * image.channels,
                image.pixels.data() + from,
                static_cast<std::size_t>((end - first) * image.channels));
  }
  return result;
}

constexpr const char* kFilterDoc =
    "Filter. nearest: the nearest pixel, for images whose values are not brightness, such as "
    "masks; bilinear or bicubic: both antialiased.";

ImagePart resized(PixelBox box, Size2 size, ResizeFilter filter) {
  ImagePart part{box, size.h, size.w, {0, 0, size.h, size.w}};
  part.filter = filter;
  return part;
}

// ---- Resize ------------------------------------------------------------------------------------

struct ResizeOptions {
  std::vector<std::int64_t> size;
  ResizeFilter interpolation = ResizeFilter::bilinear;
};

class Resize final : public HostTransform {
 public:
  bool gives_size() const override { return true; }
  explicit Resize(const ResizeOptions& options)
      : size_(options.size), filter_(options.interpolation) {}

  std::optional<Size2> size_after(std::optional<Size2> before) const override {
    if (size_.size() == 2) return Size2{size_[0], size_[1]};
    if (!before) return std::nullopt;
    return with_shorter_side(*before, size_[0]);
  }
  std::optional<ImagePart> choose(Size2 image, DrawStream&) const override {
    return resized({0, 0, image.h, image.w}, *size_after(image), filter_);
  }
  void apply(Image& image, DrawStream& draws) const override {
    image = part_of(image, *choose({image.height, image.width}, draws));
  }

 private:
  std::vector<std::int64_t> size_;
  ResizeFilter filter_;
};

// ---- CenterCrop --------------------------------------------------------------------------------

struct CenterCropOptions {
  Size2 size{0, 0};
};

class CenterCrop final : public HostTransform {
 public:
  bool gives_size() const override { return true; }
  explicit CenterCrop(const CenterCropOptions& options) : size_(options.size) {}

  std::optional<Size2> size_after(std::optional<Size2>) const override { return size_; }
  std::optional<PixelBox> keeps(Size2 image, DrawStream&) const override {
    if (image.h < size_.h || image.w < size_.w) return std::nullopt;
    return PixelBox{rounded_to_even(static_cast<double>(image.h - size_.h) / 2),
                    rounded_to_even(static_cast<double>(image.w - size_.w) / 2), size_.h, size_.w};
  }
  void apply(Image& image, DrawStream&) const override {
    // A smaller image is padded first. If the padding is odd, the extra row or column is at the
    // bottom or right.
    const std::int64_t before_h = std::max<std::int64_t>(size_.h - image.height, 0) / 2;
    const std::int64_t before_w = std::max<std::int64_t>(size_.w - image.width, 0) / 2;
    const std::int64_t h = std::max(image.height, size_.h), w = std::max(image.width, size_.w);
    image = padded_crop(image, rounded_to_even(static_cast<double>(h - size_.h) / 2) - before_h,
                        rounded_to_even(static_cast<double>(w - size_.w) / 2) - before_w, size_);
  }

 private:
  Size2 size_;
};

// ---- RandomCrop --------------------------------------------------------------------------------

struct RandomCropOptions {
  Size2 size{0, 0};
  std::int64_t padding = 0;
};

class RandomCrop final : public HostTransform {
 public:
  explicit RandomCrop(const RandomCropOptions& options, std::string place)
      : size_(options.size), padding_(options.padding), place_(std::move(place)) {}

  std::optional<Size2> size_after(std::optional<Size2> before) const override {
    if (before) check(*before, ErrorKind::usage);
    return size_;
  }
  void apply(Image& image, DrawStream& draws) const override {
    const std::int64_t h = image.height + 2 * padding_, w = image.width + 2 * padding_;
    check({image.height, image.width}, ErrorKind::data);
    const std::int64_t top = draws.below(h - size_.h + 1) - padding_;
    const std::int64_t left = draws.below(w - size_.w + 1) - padding_;
    image = padded_crop(image, top, left, size_);
  }

 private:
  void check(Size2 image, ErrorKind kind) const {
    if (image.h + 2 * padding_ >= size_.h && image.w + 2 * padding_ >= size_.w) return;
    fail(kind,
         "{}: expected images of at least {}x{} (height x width) with padding {}, found {}x{}: "
         "put a Resize before it",
         place_, size_.h, size_.w, padding_, image.h, image.w);
  }

  Size2 size_;
  std::int64_t padding_;
  std::string place_;
};

void describe_crop(const Variant& transform, InputDesc& desc) {
  const auto& options = transform.as<RandomCropOptions>();
  if (desc.crop) fail(ErrorKind::usage, "{}: appears twice in the list", place_of(transform));
  desc.crop = true;
  if (options.size != Size2{desc.out.h, desc.out.w}) {
    fail(ErrorKind::usage,
         "{}: size {} is not the height and width of model.input, {}: write size: [{}, {}]",
         place_of(transform), size_text(options.size), size_text({desc.out.h, desc.out.w}),
         desc.out.h, desc.out.w);
  }
  const Size2 padded{desc.raw.h + 2 * options.padding, desc.raw.w + 2 * options.padding};
  if (options.size.h > padded.h || options.size.w > padded.w) {
    fail(ErrorKind::usage,
         "{}: size {} is larger than the data set's {} images with padding {} ({})",
         place_of(transform), size_text(options.size), size_text({desc.raw.h, desc.raw.w}),
         options.padding, size_text(padded));
  }
  desc.crop_padding = options.padding;
}

// ---- RandomResizedCrop -------------------------------------------------------------------------

struct RandomResizedCropOptions {
  Size2 size{0, 0};
  std::vector<double> scale{0.08, 1.0}, ratio{3.0 / 4.0, 4.0 / 3.0};
  ResizeFilter interpolation = ResizeFilter::bilinear;
  bool reduced_decoding = false;
};

class RandomResizedCrop final : public HostTransform {
 public:
  explicit RandomResizedCrop(const RandomResizedCropOptions& options) : options_(options) {}

  bool gives_size() const override { return true; }
  bool reduces_decoding() const override { return options_.reduced_decoding; }
  std::optional<Size2> size_after(std::optional<Size2>) const override { return options_.size; }
  std::optional<ImagePart> choose(Size2 image, DrawStream& draws) const override {
    ImagePart part = resized(box(image, draws), options_.size, options_.interpolation);
    part.exact = !options_.reduced_decoding;
    return part;
  }
  void apply(Image& image, DrawStream& draws) const override {
    image = part_of(image, *choose({image.height, image.width}, draws));
  }

 private:
  PixelBox box(Size2 image, DrawStream& draws) const {
    const auto h = static_cast<double>(image.h), w = static_cast<double>(image.w);
    const std::vector<double>&scale = options_.scale, &ratio = options_.ratio;
    for (int i = 0; i < 10; ++i) {
      const double area = h * w * draws.uniform(scale[0], scale[1]);
      const double aspect = std::exp(draws.uniform(std::log(ratio[0]), std::log(ratio[1])));
      const std::int64_t width = rounded_to_even(std::sqrt(area * aspect));
      const std::int64_t height = rounded_to_even(std::sqrt(area / aspect));
      if (width < 1 || width > image.w || height < 1 || height > image.h) continue;
      const std::int64_t top = draws.below(image.h - height + 1);
      return {top, draws.below(image.w - width + 1), height, width};
    }
    // No try fits into the image: take its largest central part that has an allowed aspect ratio.
    std::int64_t height = image.h, width = image.w;
    if (w / h < ratio[0]) {
      height = std::max<std::int64_t>(rounded_to_even(w / ratio[0]), 1);
    } else if (w / h > ratio[1]) {
      width = std::max<std::int64_t>(rounded_to_even(h * ratio[1]), 1);
    }
    return {(image.h - height) / 2, (image.w - width) / 2, height, width};
  }

  RandomResizedCropOptions options_;
};

}  // namespace

Size2 with_shorter_side(Size2 image, std::int64_t side) {
  const std::int64_t shorter = std::min(image.h, image.w);
  const std::int64_t longer = std::max(image.h, image.w);
  const auto other =
      static_cast<std::int64_t>(static_cast<double>(side * longer) / static_cast<double>(shorter));
  return image.h <= image.w ? Size2{side, other} : Size2{other, side};
}

TransformKind resize_transform() {
  static const ObjectTable table = object_table<ResizeOptions>(
      "Resize", "Resizes the image, as Pillow does.",
      {field("size", &ResizeOptions::size,
             "Size of the shorter side (the aspect ratio is kept), or [height, width].")
           .required()
           .range(1, 16384)
           .items(1, 2)
           .or_one(),
       field("interpolation", &ResizeOptions::interpolation, kFilterDoc)});
  return {&table, [](const Variant& options) -> std::unique_ptr<HostTransform> {
            return std::make_unique<Resize>(options.as<ResizeOptions>());
          }};
}

TransformKind center_crop_transform() {
  static const ObjectTable table = object_table<CenterCropOptions>(
      "CenterCrop", "Keeps the centre of the image; a smaller image is padded with black first.",
      {field("size", &CenterCropOptions::size, "Height and width of the crop.")
           .required()
           .range(1, 16384)});
  return {&table, [](const Variant& options) -> std::unique_ptr<HostTransform> {
            return std::make_unique<CenterCrop>(options.as<CenterCropOptions>());
          }};
}

TransformKind random_crop_transform() {
  static const ObjectTable table = object_table<RandomCropOptions>(
      "RandomCrop",
      "Takes a random crop of the image, after padding the image with black (raw zeros, as "
      "torchvision does before ToTensor).",
      {field("size", &RandomCropOptions::size,
             "Height and width of the crop; must be those of model.input.")
           .required()
           .range(1, 16384),
       field("padding", &RandomCropOptions::padding, "Padding on each side, in pixels.")
           .range(0, 1024)});
  return {&table,
          [](const Variant& options) -> std::unique_ptr<HostTransform> {
            return std::make_unique<RandomCrop>(options.as<RandomCropOptions>(), place_of(options));
          },
          DevicePart{describe_crop, InputPosition::geometry, true}, true};
}

TransformKind random_resized_crop_transform() {
  static const ObjectTable table = [] {
    ObjectTable made = object_table<RandomResizedCropOptions>(
        "RandomResizedCrop", "Takes a crop of random size and aspect ratio, and resizes it.",
        {field("size", &RandomResizedCropOptions::size, "Height and width of the result.")
             .required()
             .range(1, 16384),
         field("scale", &RandomResizedCropOptions::scale,
               "Minimum and maximum area of the crop, as fractions of the image's area.")
             .items(2, 2)
             .range(0, 1),
         field("ratio", &RandomResizedCropOptions::ratio,
               "Minimum and maximum ratio of the crop's width to its height.")
             .items(2, 2)
             .range(0, 1000),
         field("interpolation", &RandomResizedCropOptions::interpolation, kFilterDoc),
         field("reduced_decoding", &RandomResizedCropOptions::reduced_decoding,
               "Decode a JPEG at a reduced size (1/2, 1/4, 1/8) if the crop is then still at least "
               "as large as the result: faster for large photos, but the pixels are no longer "
               "exactly Pillow's. Not with data.cache, whose images are decoded already.")});
    made.check = [](const void* options) {
      const auto& these = *static_cast<const RandomResizedCropOptions*>(options);
      if (these.reduced_decoding && these.interpolation != ResizeFilter::bilinear) {
        return fmt::format("reduced_decoding: expected interpolation: bilinear, found {}",
                           name_of(these.interpolation));
      }
      std::string problem = problem_of_positive_range("scale", these.scale);
      return problem.empty() ? problem_of_positive_range("ratio", these.ratio) : problem;
    };
    return made;
  }();
  return {&table,
          [](const Variant& options) -> std::unique_ptr<HostTransform> {
            return std::make_unique<RandomResizedCrop>(options.as<RandomResizedCropOptions>());
          },
          std::nullopt, true};
}

}  // namespace dpt
