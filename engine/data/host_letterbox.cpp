// Letterbox on the host. Source of the formulas: ultralytics, data/augment.py, LetterBox with
// center and scaleup. ultralytics resizes with OpenCV, this code with Pillow's filter.
#include <algorithm>
#include <cmath>

#include "engine/data/host_options.h"
#include "engine/data/transform_kinds.h"
#include "kernels/image/image_ops.h"
#include "kernels/image/resize.h"

namespace dpt {
namespace {

struct LetterboxOptions {
  Size2 size{0, 0};
  std::vector<double> fill = {114};
};

class Letterbox final : public HostTransform {
 public:
  explicit Letterbox(const Variant& transform)
      : size_(transform.as<LetterboxOptions>().size),
        fill_(transform, transform.as<LetterboxOptions>().fill) {}

  std::optional<Size2> size_after(std::optional<Size2>) const override { return size_; }
  bool gives_size() const override { return true; }
  std::optional<ImagePart> choose(Size2 image, DrawStream&) const override {
    const Size2 size = fitted(image);
    return whole_image(image.h, image.w, size.h, size.w);
  }
  /// Returns true: after `choose` has resized an image, `apply` only pads it.
  bool applies_after_choose() const override { return true; }
  void apply(Image& image, DrawStream&) const override {
    const Size2 size = fitted({image.height, image.width});
    if (size != Size2{image.height, image.width}) {
      image = part_of(image, whole_image(image.height, image.width, size.h, size.w));
    }
    if (size == size_) return;
    const std::int64_t top = (size_.h - size.h) / 2, left = (size_.w - size.w) / 2;
    const Padding padding{left, top, size_.w - size.w - left, size_.h - size.h - top};
    replace_image(image, padded(image, padding, PaddingMode::constant, fill_.of(image)));
  }

 private:
  /// Returns the size of the image after it is scaled to fit.
  Size2 fitted(Size2 image) const {
    const auto h = static_cast<double>(image.h), w = static_cast<double>(image.w);
    const double scale =
        std::min(static_cast<double>(size_.h) / h, static_cast<double>(size_.w) / w);
    // Round like Python's round(): halves to the nearest even number.
    const auto scaled = [&](double side) {
      return std::max<std::int64_t>(static_cast<std::int64_t>(std::nearbyint(side * scale)), 1);
    };
    return {scaled(h), scaled(w)};
  }

  Size2 size_;
  Fill fill_;
};

}  // namespace

TransformKind letterbox_transform() {
  static const ObjectTable table = object_table<LetterboxOptions>(
      "Letterbox",
      "Resizes the image (bilinear, antialiased) to fit into `size` without changing its aspect "
      "ratio, and pads it equally on opposite sides.",
      {field("size", &LetterboxOptions::size, "Height and width of the result.")
           .required()
           .range(1, 16384),
       field("fill", &LetterboxOptions::fill,
             "Value of the padding, from 0 to 255: one for all channels, or [red, green, blue].")
           .range(0, 255)
           .items(1, 3)
           .or_one()});
  return {&table, [](const Variant& options) -> std::unique_ptr<HostTransform> {
            return std::make_unique<Letterbox>(options);
          }};
}

}  // namespace dpt
