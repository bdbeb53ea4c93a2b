#include "engine/data/host_pipeline.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>

#include "engine/data/host_options.h"
#include "engine/data/transform_kinds.h"
#include "engine/data/wrapped_source.h"
#include "kernels/base/error.h"
#include "kernels/base/stage_clock.h"
#include "kernels/image/resize.h"

namespace dpt {
namespace {

/// Returns the part of a transform that the input kernel applies; null if there is none.
const DevicePart* device_part(const Variant& transform) {
  const TransformKind& kind = transform_kinds().at(transform.type);
  return kind.device ? &*kind.device : nullptr;
}

[[maybe_unused]] bool is_empty(const PixelBox& box) {
  return box.height < 1 || box.width < 1;
}

/// A source whose samples pass through a pipeline.
class TransformedSource final : public WrappedSource {
 public:
  TransformedSource(std::shared_ptr<const DataSource> source, HostPipeline pipeline)
      : WrappedSource(std::move(source)), pipeline_(std::move(pipeline)) {}

  SampleShape shape() const override {
    return {pipeline_.size().h, pipeline_.size().w, source().shape().c};
  }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override {
    read_in_epoch({0, index, index}, pixels, label);
  }
  void read_in_epoch(const Occurrence& sample, std::span<std::byte> pixels,
                     std::int32_t& label) const override {
    pipeline_.read(source(), sample, pixels, label);
  }

 private:
  HostPipeline pipeline_;
};

}  // namespace

DividedTransforms divide_transforms(std::span<const Variant> transforms) {
  const auto end_after = [&](const auto& is_wanted) {
    const auto last = std::find_if(transforms.rbegin(), transforms.rend(), is_wanted);
    return static_cast<std::size_t>(std::distance(last, transforms.rend()));
  };
  std::size_t count = end_after([](const Variant& each) { return !device_part(each); });
  // Sizes after the host part are unknown until images are read, so a transform that needs a known
  // size must run on the host too.
  if (count > 0) {
    count = end_after([](const Variant& each) {
      return !device_part(each) || device_part(each)->needs_known_size;
    });
  }
  return {transforms.first(count), transforms.subspan(count)};
}

bool gives_size(std::span<const Variant> transforms) {
  return std::any_of(transforms.begin(), transforms.end(), [](const Variant& transform) {
    const TransformKind& kind = transform_kinds().at(transform.type);
    return kind.make && kind.make(transform)->gives_size();
  });
}

HostPipeline::HostPipeline(std::span<const Variant> transforms, std::optional<Size2> image,
                           Size2 resize_to, std::uint64_t seed)
    : seed_(seed) {
  std::string problems;
  for (std::size_t i = 0; i < transforms.size(); ++i) {
    const Variant& transform = transforms[i];
    try {
      const TransformKind& kind = transform_kinds().at(transform.type);
      if (!kind.make) {
        fail(ErrorKind::usage, "{}: must be last, after {}", place_of(transform),
             transforms.back().type);
      }
      stages_.push_back({kind.make(transform), static_cast<int>(i)});
    } catch (const Error& error) {
      problems += (problems.empty() ? "" : "\n") + std::string(error.what());
    }
  }
  if (!problems.empty()) throw Error(ErrorKind::usage, problems);

  const auto size_after = [&](std::optional<Size2> size) {
    for (const Stage& stage : stages_) size = stage.transform->size_after(size);
    return size;
  };
  const bool gives_size = std::any_of(stages_.begin(), stages_.end(), [](const Stage& stage) {
    return stage.transform->gives_size();
  });
  if (!image && !gives_size) resize_first_ = resize_to;
  const std::optional<Size2> size = size_after(resize_first_ ? resize_first_ : image);
  if (!size) {
    throw SizesDiffer(fmt::format(
        "{}: images have different sizes after it, but a batch needs a single size: add Resize or "
        "CenterCrop with size: [{}, {}], those of model.input",
        place_of(transforms.back()), resize_to.h, resize_to.w));
  }
  size_ = *size;
}

void HostPipeline::read(const DataSource& source, const Occurrence& sample,
                        std::span<std::byte> pixels, std::int32_t& label) const {
  const auto draws_of = [&](const Stage& stage) {
    return DrawStream(seed_, sample.epoch, sample.key, stage.place);
  };
  // Do not decode pixels that transforms crop away before the first one that needs pixels.
  std::size_t done = 0;
  const ChoosePart choose = [&](std::int64_t height, std::int64_t width) {
    ImagePart part = whole_image(height, width, height, width);
    bool is_resized = false;
    if (resize_first_) {
      part = whole_image(height, width, resize_first_->h, resize_first_->w);
      is_resized = true;
    }
    for (; done < stages_.size(); ++done) {
      const Stage& stage = stages_[done];
      const Size2 now{part.window.height, part.window.width};
      DrawStream draws = draws_of(stage);
      if (!is_resized && done == 0) {
        if (const std::optional<ImagePart> chosen = stage.transform->choose(now, draws)) {
          part = *chosen;
          is_resized = true;
          if (stage.transform->applies_after_choose()) break;
          continue;
        }
        draws = draws_of(stage);
      }
      const std::optional<PixelBox> kept = stage.transform->keeps(now, draws);
      if (!kept) break;
      part.window = {part.window.top + kept->top, part.window.left + kept->left, kept->height,
                     kept->width};
    }
    if (!is_resized) {
      part.box = part.window;
      part.height = part.box.height;
      part.width = part.box.width;
      part.window = {0, 0, part.height, part.width};
    }
    assert(!is_empty(part.box) && !is_empty(part.window));
    return part;
  };
  Image image = source.read_part(sample.index, choose, label);
  const StageTimer timer(DataStage::transform);
  for (; done < stages_.size(); ++done) {
    DrawStream draws = draws_of(stages_[done]);
    stages_[done].transform->apply(image, draws);
  }
  assert(image.pixels.size() == pixels.size());
  std::memcpy(pixels.data(), image.pixels.data(), pixels.size());
}

std::shared_ptr<const DataSource> with_host_transforms(std::shared_ptr<const DataSource> source,
                                                       std::span<const Variant> transforms,
                                                       SampleShape input, std::uint64_t seed) {
  const std::span<const Variant> host = divide_transforms(transforms).host;
  if (!source || host.empty()) return source;
  const Variant& last = host.back();
  const SampleShape shape = source->shape();
  if (source->type() != DType::u8 || (shape.c != 1 && shape.c != 3)) {
    fail(ErrorKind::usage,
         "{}: expected images of 8-bit pixels with 1 or 3 channels, but the data set's samples "
         "are {} with {} channel{}",
         place_of(last), name_of(source->type()), shape.c, shape.c == 1 ? "" : "s");
  }
  std::optional<Size2> image;
  if (!source->resizes()) image = Size2{shape.h, shape.w};
  HostPipeline pipeline(host, image, {input.h, input.w}, seed);
  return std::make_shared<TransformedSource>(std::move(source), std::move(pipeline));
}

}  // namespace dpt
