// RandomHorizontalFlip and RandomVerticalFlip.
#include "engine/data/host_options.h"
#include "engine/data/transform_kinds.h"
#include "kernels/base/error.h"
#include "kernels/image/image_ops.h"

namespace dpt {
namespace {

struct FlipOptions {
  double p = 0.5;
};

const ObjectTable& vertical_flip_table() {
  static const ObjectTable table = object_table<FlipOptions>(
      "RandomVerticalFlip", "Flips the image upside down at random.",
      {field("p", &FlipOptions::p, "Probability of a flip.").range(0, 1)});
  return table;
}

template <void (*kFlip)(Image&)>
class Flip final : public HostTransform {
 public:
  explicit Flip(double p) : p_(p) {}
  void apply(Image& image, DrawStream& draws) const override {
    if (draws.happens(p_)) kFlip(image);
  }

 private:
  double p_;
};

template <void (*kFlip)(Image&)>
std::unique_ptr<HostTransform> make_flip(const Variant& options) {
  return std::make_unique<Flip<kFlip>>(options.as<FlipOptions>().p);
}

void describe_flip(const Variant& transform, InputDesc& desc) {
  if (desc.flip) fail(ErrorKind::usage, "{}: appears twice in the list", place_of(transform));
  desc.flip = true;
  desc.flip_probability = static_cast<float>(transform.as<FlipOptions>().p);
}

}  // namespace

TransformKind random_horizontal_flip_transform() {
  static const ObjectTable table = object_table<FlipOptions>(
      "RandomHorizontalFlip", "Flips the image left to right at random.",
      {field("p", &FlipOptions::p, "Probability of a flip.").range(0, 1)});
  return {&table, make_flip<flip_horizontally>, DevicePart{describe_flip}, true};
}

TransformKind random_vertical_flip_transform() {
  return {&vertical_flip_table(), make_flip<flip_vertically>, std::nullopt, true};
}

}  // namespace dpt
