#include "engine/data/input_draws.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/data/host_options.h"
#include "engine/data/transform_tables.h"
#include "kernels/base/error.h"

namespace dpt {
namespace {

struct MixOptions {
  double alpha = 1;
};

constexpr const char* kAlpha =
    "The factor of a batch is drawn from Beta(alpha, alpha): near 0 or 1 for small alpha, near 1/2 "
    "for large ones.";

const ObjectTable& mix_up_table() {
  static const ObjectTable table = object_table<MixOptions>(
      "MixUp",
      "Each sample becomes factor * itself + (1 - factor) * the sample before it in the batch, and "
      "so do its targets.",
      {field("alpha", &MixOptions::alpha, kAlpha).above(0)});
  return table;
}

const ObjectTable& cut_mix_table() {
  static const ObjectTable table = object_table<MixOptions>(
      "CutMix",
      "A rectangle of each sample, the same in a batch, is replaced by that of the sample before "
      "it; targets are mixed in proportion to the area. Not of targets that are values.",
      {field("alpha", &MixOptions::alpha, kAlpha).above(0)});
  return table;
}

double draw_normal(DrawStream& draws) {
  // Box and Muller; 1 - u is never 0.
  const double radius = std::sqrt(-2 * std::log(1 - draws.uniform()));
  return radius * std::cos(2 * std::numbers::pi * draws.uniform());
}

/// The logarithm of a number of the distribution Gamma(alpha, 1), which itself may be too small for
/// a double. Source: Marsaglia and Tsang, "A simple method for generating gamma variables", 2000.
double draw_log_gamma(double alpha, DrawStream& draws) {
  if (alpha < 1) {
    const double above = draw_log_gamma(alpha + 1, draws);
    return above + std::log(1 - draws.uniform()) / alpha;
  }
  const double d = alpha - 1.0 / 3.0, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = draw_normal(draws);
    const double root = 1 + c * x;
    const double u = 1 - draws.uniform();
    if (root <= 0) continue;
    const double v = root * root * root;
    if (std::log(u) < 0.5 * x * x + d - d * v + d * std::log(v)) return std::log(d * v);
  }
}

}  // namespace

double draw_beta(double alpha, DrawStream& draws) {
  const double own = draw_log_gamma(alpha, draws), other = draw_log_gamma(alpha, draws);
  return 1 / (1 + std::exp(other - own));
}

BatchMix mix_up(double lambda, Size2 size) {
  BatchMix mix;
  mix.own = static_cast<float>(lambda);
  mix.partner = static_cast<float>(1 - lambda);
  mix.input = {mix.own,
               mix.partner,
               {0, 0, static_cast<std::int32_t>(size.h), static_cast<std::int32_t>(size.w)}};
  return mix;
}

BatchMix cut_mix(double lambda, std::int64_t x, std::int64_t y, Size2 size) {
  const double r = 0.5 * std::sqrt(1 - lambda);
  const auto half_w = static_cast<std::int64_t>(r * static_cast<double>(size.w));
  const auto half_h = static_cast<std::int64_t>(r * static_cast<double>(size.h));
  const std::int64_t left = std::max<std::int64_t>(x - half_w, 0);
  const std::int64_t top = std::max<std::int64_t>(y - half_h, 0);
  const std::int64_t width = std::min(x + half_w, size.w) - left;
  const std::int64_t height = std::min(y + half_h, size.h) - top;
  const double adjusted =
      1 - static_cast<double>(width * height) / static_cast<double>(size.w * size.h);
  BatchMix mix;
  mix.own = static_cast<float>(adjusted);
  mix.partner = static_cast<float>(1 - adjusted);
  mix.input = {0,
               1,
               {static_cast<std::int32_t>(top), static_cast<std::int32_t>(left),
                static_cast<std::int32_t>(height), static_cast<std::int32_t>(width)}};
  return mix;
}

InputDraws::InputDraws(const TransformsSpec& transforms, SampleShape input, std::uint64_t seed,
                       const TargetShape& mixed)
    : size_{input.h, input.w}, seed_(seed), mixed_targets_(mixed) {
  for (std::size_t i = 0; i < transforms.train.size(); ++i) {
    if (transforms.train[i].type != "RandomErasing") continue;
    const auto& options = transforms.train[i].as<ErasingOptions>();
    erasing_ = {{{options.scale[0], options.scale[1]}, {options.ratio[0], options.ratio[1]}},
                options.p,
                static_cast<int>(i)};
  }
  for (const Variant& each : transforms.batch) {
    mixings_.push_back({each.type == "CutMix", each.as<MixOptions>().alpha});
  }
}

InputBox InputDraws::erased(std::int64_t epoch, std::int64_t sample) const {
  DrawStream draws(seed_, epoch, sample, erasing_->place);
  if (!draws.happens(erasing_->p)) return {};
  const std::optional<PixelBox> box = draw_erasing(erasing_->ranges, size_, draws);
  if (!box) return {};
  return {static_cast<std::int32_t>(box->top), static_cast<std::int32_t>(box->left),
          static_cast<std::int32_t>(box->height), static_cast<std::int32_t>(box->width)};
}

BatchMix InputDraws::mix(std::int64_t epoch, std::int64_t index) const {
  DrawStream draws(seed_, epoch, index, 0, philox::Use::mix);
  const std::size_t which =
      mixings_.size() == 1
          ? 0
          : static_cast<std::size_t>(draws.below(static_cast<std::int64_t>(mixings_.size())));
  // Round as torchvision does, whose factors are float32.
  const auto lambda =
      static_cast<double>(static_cast<float>(draw_beta(mixings_[which].alpha, draws)));
  if (!mixings_[which].cuts) return mix_up(lambda, size_);
  const std::int64_t x = draws.below(size_.w);
  return cut_mix(lambda, x, draws.below(size_.h), size_);
}

TargetShape mixed_targets(const TargetShape& data, std::int64_t outputs) {
  if (data.kind != TargetKind::class_index) return data;
  TargetShape mixed;
  mixed.kind = TargetKind::soft_labels;
  mixed.values = outputs;
  return mixed;
}

std::int32_t mix_targets(const TargetShape& mixed, const BatchMix& mix, const SampleTargets& own,
                         const SampleTargets& partner, float* row) {
  if (own.row) {
    for (std::int64_t c = 0; c < mixed.values; ++c) {
      row[c] = partner.row[c] * mix.partner + own.row[c] * mix.own;
    }
  } else {
    std::fill_n(row, mixed.values, 0.0F);
    row[partner.label] = mix.partner;
    row[own.label] += mix.own;
  }
  if (!has_labels(mixed.kind)) return own.label;
  return static_cast<std::int32_t>(std::max_element(row, row + mixed.values) - row);
}

const VariantTable& batch_transform_table() {
  static const VariantTable table = [] {
    VariantTable made;
    made.what = "batch transform";
    made.alternatives = {&mix_up_table(), &cut_mix_table()};
    made.hints = {{"Mixup", "MixUp"},
                  {"mixup", "MixUp"},
                  {"Cutmix", "CutMix"},
                  {"cutmix", "CutMix"},
                  {"RandomChoice",
                   "the transforms themselves: one of the list is chosen for each "
                   "batch"}};
    return made;
  }();
  return table;
}

void check_evaluation_transforms(const TransformsSpec& transforms) {
  for (const Variant& each : transforms.eval) {
    if (each.type != "RandomErasing") continue;
    fail(ErrorKind::usage,
         "{}: is for training only: expected it in data.transforms.train, found it in "
         "data.transforms.eval",
         place_of(each));
  }
}

}  // namespace dpt
