#include "engine/data/transforms.h"

#include <span>
#include <utility>

#include "engine/data/host_options.h"
#include "engine/data/host_pipeline.h"
#include "engine/data/transform_kinds.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

/// Fails if `transform` may not follow `last`, the transform of the highest position before it.
void check_order(const Variant& transform, InputPosition position, const Variant& last,
                 InputPosition last_position) {
  if (last.type == transform.type) {
    fail(ErrorKind::usage, "{}: appears twice in the list", place_of(transform));
  }
  if (position <= last_position) {
    fail(ErrorKind::usage, "{}: must come before {}", place_of(transform), last.type);
  }
}

}  // namespace

InputDesc make_input_desc(const std::vector<Variant>& transforms, const DataSource& source,
                          SampleShape model_input, std::uint64_t seed) {
  return make_input_desc(transforms, source.type(), source.shape(), model_input, seed);
}

InputDesc make_input_desc(const std::vector<Variant>& transforms, DType raw_type, SampleShape raw,
                          SampleShape model_input, std::uint64_t seed) {
  InputDesc desc;
  desc.raw_type = raw_type;
  desc.raw = raw;
  desc.out = model_input;
  desc.seed = seed;
  if (desc.raw.c != model_input.c) {
    fail(ErrorKind::usage,
         "model.input has {} channel{}, but the data set's images have {}: write model.input: [{}, "
         "{}, {}]",
         model_input.c, model_input.c == 1 ? "" : "s", desc.raw.c, desc.raw.c, model_input.h,
         model_input.w);
  }
  std::string problems;
  const Variant* last = nullptr;  // null until a transform above `geometry`
  InputPosition last_position = InputPosition::geometry;
  const DividedTransforms divided = divide_transforms(transforms);
  for (const Variant& transform : divided.device) {
    const DevicePart& part = *transform_kinds().at(transform.type).device;
    try {
      if (last) check_order(transform, part.position, *last, last_position);
      part.describe(transform, desc);
    } catch (const Error& error) {
      problems += (problems.empty() ? "" : "\n") + std::string(error.what());
    }
    if (part.position > InputPosition::geometry) {
      last = &transform;
      last_position = part.position;
    }
  }
  if (!problems.empty()) throw Error(ErrorKind::usage, problems);
  if (!desc.crop && (desc.raw.h != model_input.h || desc.raw.w != model_input.w)) {
    if (!divided.host.empty()) {
      const Variant& on_host = divided.host.back();
      fail(ErrorKind::usage, "{}: produces images of {}, but model.input is {}: {} size: [{}, {}]",
           place_of(on_host), size_text({desc.raw.h, desc.raw.w}),
           size_text({model_input.h, model_input.w}),
           on_host.type.ends_with("Crop") ? "give it" : "add CenterCrop with", model_input.h,
           model_input.w);
    }
    fail(ErrorKind::usage,
         "model.input is {}, but the data set's images are {}: write model.input: [{}, {}, {}]",
         size_text({model_input.h, model_input.w}), size_text({desc.raw.h, desc.raw.w}), desc.raw.c,
         desc.raw.h, desc.raw.w);
  }
  return desc;
}

void check_transforms(const std::vector<Variant>& transforms, SampleShape model_input) {
  const std::span<const Variant> host = divide_transforms(transforms).host;
  const Size2 input{model_input.h, model_input.w};
  SampleShape raw = model_input;
  if (!host.empty()) {
    const Size2 size = HostPipeline(host, input, input, 0).size();
    // Use the size after the host's part only if it is the same for images of two sizes: the
    // images' own sizes are not known here.
    const Size2 other{input.h + 1, input.w + 2};
    if (HostPipeline(host, other, input, 0).size() == size) raw = {size.h, size.w, model_input.c};
  }
  make_input_desc(transforms, DType::u8, raw, model_input, 0);
}

std::string random_evaluation(const TransformsSpec& transforms) {
  for (const Variant& each : transforms.eval) {
    const TransformKind& kind = transform_kinds().at(each.type);
    // check_evaluation_transforms reports transforms that are for training only.
    if (!kind.is_random || kind.trains_only) continue;
    return fmt::format(
        "{}: {} is random: validation, test and predict would measure changed samples. Move it to "
        "data.transforms.train, or use Resize and CenterCrop",
        each.where.text(), each.type);
  }
  return {};
}

void check_evaluation_transforms(const TransformsSpec& transforms) {
  for (const Variant& each : transforms.eval) {
    if (!transform_kinds().at(each.type).trains_only) continue;
    fail(ErrorKind::usage,
         "{}: is for training only: expected it in data.transforms.train, found it in "
         "data.transforms.eval",
         place_of(each));
  }
}

}  // namespace dpt
