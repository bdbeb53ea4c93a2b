#include "engine/data/transforms.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include <fmt/ranges.h>

#include "engine/data/host_options.h"
#include "engine/data/host_pipeline.h"
#include "engine/data/input_draws.h"
#include "engine/data/transform_kinds.h"
#include "engine/data/transform_tables.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

struct NormalizeOptions {
  std::vector<double> mean, std;
};

std::string sizes(std::int64_t h, std::int64_t w) {
  return fmt::format("{}x{}", h, w);
}

void apply_crop(const Variant& transform, SampleShape model, InputDesc& desc) {
  const auto& options = transform.as<RandomCropOptions>();
  if (options.size != Size2{model.h, model.w}) {
    fail(ErrorKind::usage,
         "{}: size {} is not the height and width of model.input, {}: write size: [{}, {}]",
         place_of(transform), sizes(options.size.h, options.size.w), sizes(model.h, model.w),
         model.h, model.w);
  }
  const std::int64_t h = desc.raw.h + 2 * options.padding, w = desc.raw.w + 2 * options.padding;
  if (options.size.h > h || options.size.w > w) {
    fail(ErrorKind::usage,
         "{}: size {} is larger than the data set's {} images with padding {} ({})",
         place_of(transform), sizes(options.size.h, options.size.w), sizes(desc.raw.h, desc.raw.w),
         options.padding, sizes(h, w));
  }
  desc.crop_padding = options.padding;
}

/// One value per channel, finite and, where `positive`, above zero.
std::vector<float> per_channel(const Variant& transform, const char* name,
                               const std::vector<double>& values, std::int64_t channels,
                               bool positive) {
  if (static_cast<std::int64_t>(values.size()) != channels) {
    fail(ErrorKind::usage, "{}: {} has {} value{}, but the images have {} channel{}",
         place_of(transform), name, values.size(), values.size() == 1 ? "" : "s", channels,
         channels == 1 ? "" : "s");
  }
  std::vector<float> result;
  for (const double value : values) {
    const auto as_float = static_cast<float>(value);
    if (!std::isfinite(as_float) || (positive && as_float <= 0.0F)) {
      fail(ErrorKind::usage, "{}: {} must hold {}, found {}", place_of(transform), name,
           positive ? "numbers above 0" : "finite numbers", value);
    }
    result.push_back(as_float);
  }
  return result;
}

void apply_normalize(const Variant& transform, InputDesc& desc) {
  const auto& options = transform.as<NormalizeOptions>();
  desc.mean = per_channel(transform, "mean", options.mean, desc.raw.c, false);
  desc.stddev = per_channel(transform, "std", options.std, desc.raw.c, true);
}

/// Returns "mean [0.5], std [0.25]" for each Normalize in a list; "nothing" if there is none.
std::string normalisation_text(const std::vector<Variant>& transforms) {
  std::vector<std::string> texts;
  for (const Variant& transform : transforms) {
    if (transform.type != "Normalize") continue;
    const auto& options = transform.as<NormalizeOptions>();
    texts.push_back(fmt::format("mean [{}], std [{}]", fmt::join(options.mean, ", "),
                                fmt::join(options.std, ", ")));
  }
  return texts.empty() ? "nothing" : fmt::format("{}", fmt::join(texts, "; "));
}

void apply_erasing(const Variant& transform, InputDesc& desc) {
  const auto& options = transform.as<ErasingOptions>();
  std::vector<double> values = options.value;
  if (values.size() == 1) values.resize(static_cast<std::size_t>(desc.raw.c), values[0]);
  desc.erase = true;
  desc.erase_value = per_channel(transform, "value", values, desc.raw.c, false);
}

/// `last`: the Normalize or RandomErasing before it, which it may not follow; null: none.
void apply_one(const Variant& transform, const Variant* last, SampleShape model, InputDesc& desc) {
  if (last && last->type == transform.type) {
    fail(ErrorKind::usage, "{}: appears twice in the list", place_of(transform));
  }
  if (last && (last->type == "RandomErasing" || transform.type != "RandomErasing")) {
    fail(ErrorKind::usage, "{}: comes after {}, which must be last", place_of(transform),
         last->type);
  }
  if (transform.type == "RandomErasing") {
    apply_erasing(transform, desc);
  } else if (transform.type == "Normalize") {
    apply_normalize(transform, desc);
  } else if (transform.type == "RandomCrop" ? desc.crop : desc.flip) {
    fail(ErrorKind::usage, "{}: appears twice in the list", place_of(transform));
  } else if (transform.type == "RandomCrop") {
    desc.crop = true;
    apply_crop(transform, model, desc);
  } else {
    desc.flip = true;
    desc.flip_probability = static_cast<float>(transform.as<FlipOptions>().p);
  }
}

}  // namespace

TransformKind normalize_transform() {
  static const ObjectTable table = object_table<NormalizeOptions>(
      "Normalize",
      "Subtracts the mean and divides by the standard deviation, after scaling to 0..1. Must be "
      "last, but for RandomErasing.",
      {field("mean", &NormalizeOptions::mean, "Mean of each channel.").required(),
       field("std", &NormalizeOptions::std, "Standard deviation of each channel.").required()});
  return {&table, nullptr};
}

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
  const Variant* last = nullptr;
  const DividedTransforms divided = divide_transforms(transforms);
  for (const Variant& transform : divided.device) {
    try {
      apply_one(transform, last, model_input, desc);
    } catch (const Error& error) {
      problems += (problems.empty() ? "" : "\n") + std::string(error.what());
    }
    if (transform.type == "Normalize" || transform.type == "RandomErasing") last = &transform;
  }
  if (!problems.empty()) throw Error(ErrorKind::usage, problems);
  if (!desc.crop && (desc.raw.h != model_input.h || desc.raw.w != model_input.w)) {
    if (!divided.host.empty()) {
      const Variant& on_host = divided.host.back();
      fail(ErrorKind::usage, "{}: leaves images of {}, but model.input is {}: {} size: [{}, {}]",
           place_of(on_host), sizes(desc.raw.h, desc.raw.w), sizes(model_input.h, model_input.w),
           on_host.type == "CenterCrop" ? "give it" : "add CenterCrop with", model_input.h,
           model_input.w);
    }
    fail(ErrorKind::usage,
         "model.input is {}, but the data set's images are {}: write model.input: [{}, {}, {}]",
         sizes(model_input.h, model_input.w), sizes(desc.raw.h, desc.raw.w), desc.raw.c, desc.raw.h,
         desc.raw.w);
  }
  return desc;
}

void check_transforms(const std::vector<Variant>& transforms, SampleShape model_input) {
  const std::span<const Variant> host = divide_transforms(transforms).host;
  const Size2 input{model_input.h, model_input.w};
  SampleShape raw = model_input;
  if (!host.empty()) {
    const Size2 size = HostPipeline(host, input, input, 0).size();
    // Sizes that follow from the images' are not known here.
    const Size2 other{input.h + 1, input.w + 2};
    if (HostPipeline(host, other, input, 0).size() == size) raw = {size.h, size.w, model_input.c};
  }
  make_input_desc(transforms, DType::u8, raw, model_input, 0);
}

std::string large_mean(const DataSpec& data) {
  const TransformsSpec& transforms = data.transforms;
  for (const auto& [name, list] : {std::pair("data.transforms.train", &transforms.train),
                                   std::pair("data.transforms.eval", &transforms.eval)}) {
    for (const Variant& transform : *list) {
      if (transform.type != "Normalize") continue;
      const std::vector<double>& means = transform.as<NormalizeOptions>().mean;
      const auto large =
          std::find_if(means.begin(), means.end(), [](double mean) { return std::abs(mean) > 1; });
      if (large == means.end()) continue;
      return fmt::format("{} the mean {:g}, but its input is 0 to 1: divide mean and std by 255",
                         data.normalize.has_numbers() ? "data.normalize has"
                                                      : fmt::format("{}: Normalize has", name),
                         *large);
    }
  }
  return {};
}

std::string random_evaluation(const TransformsSpec& transforms) {
  for (const Variant& each : transforms.eval) {
    const bool is_random = each.type.starts_with("Random") || each.type == "ColorJitter" ||
                           each.type == "TrivialAugmentWide";
    // That one has an error of its own (check_evaluation_transforms).
    if (!is_random || each.type == "RandomErasing") continue;
    return fmt::format(
        "{}: {} is random: validation, test and predict would measure changed samples. Move it to "
        "data.transforms.train, or use Resize and CenterCrop",
        each.where.text(), each.type);
  }
  return {};
}

std::string different_normalisation(const TransformsSpec& transforms) {
  const std::string train = normalisation_text(transforms.train);
  const std::string eval = normalisation_text(transforms.eval);
  if (train == eval) return {};
  return fmt::format(
      "data.transforms: train has Normalize with {}, eval with {}: evaluations show the network "
      "other values than it is trained on",
      train, eval);
}

}  // namespace dpt
