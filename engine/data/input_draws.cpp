#include "engine/data/input_draws.h"

#include "engine/data/transform_kinds.h"

namespace dpt {

InputDraws::InputDraws(const TransformsSpec& transforms, SampleShape input, std::uint64_t seed,
                       const TargetShape& mixed)
    : size_{input.h, input.w}, seed_(seed), mixed_targets_(mixed) {
  for (std::size_t i = 0; i < transforms.train.size(); ++i) {
    const Variant& transform = transforms.train[i];
    const TransformKind& kind = transform_kinds().at(transform.type);
    if (!kind.device || !kind.device->draw_box) continue;
    erasing_ = {&*kind.device, transform, static_cast<int>(i)};
  }
  for (const Variant& each : transforms.batch) {
    mixings_.push_back({&batch_transform_kinds().at(each.type), each});
  }
}

InputBox InputDraws::erased(std::int64_t epoch, std::int64_t sample) const {
  DrawStream draws(seed_, epoch, sample, erasing_->place);
  return erasing_->part->draw_box(erasing_->options, size_, draws);
}

BatchMix InputDraws::mix(std::int64_t epoch, std::int64_t index) const {
  DrawStream draws(seed_, epoch, index, 0, philox::Use::mix);
  const std::size_t which =
      mixings_.size() == 1
          ? 0
          : static_cast<std::size_t>(draws.below(static_cast<std::int64_t>(mixings_.size())));
  return mixings_[which].kind->draw(mixings_[which].options, size_, draws);
}

}  // namespace dpt
