// RandomHorizontalFlip and RandomVerticalFlip.
#include "engine/data/transform_kinds.h"
#include "engine/data/transform_tables.h"
#include "kernels/image/image_ops.h"

namespace dpt {
namespace {

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

}  // namespace

TransformKind random_horizontal_flip_transform() {
  static const ObjectTable table = object_table<FlipOptions>(
      "RandomHorizontalFlip", "Flips the image left to right at random.",
      {field("p", &FlipOptions::p, "Probability of a flip.").range(0, 1)});
  return {&table, make_flip<flip_horizontally>};
}

TransformKind random_vertical_flip_transform() {
  return {&vertical_flip_table(), make_flip<flip_vertically>};
}

}  // namespace dpt
