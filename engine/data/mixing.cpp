#include "engine/data/mixing.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "engine/data/transform_kinds.h"

namespace dpt {
namespace {

struct MixOptions {
  double alpha = 1;
};

constexpr const char* kFactorDoc =
    "The factor of a batch is drawn from Beta(alpha, alpha): near 0 or 1 for small alpha, near 1/2 "
    "for large alpha.";
constexpr const char* kAreaDoc =
    "The fraction of the image that is kept is drawn for each batch from Beta(alpha, alpha): near "
    "0 or 1 for small alpha, near 1/2 for large alpha. More is kept if the rectangle extends past "
    "the border.";

double draw_normal(DrawStream& draws) {
  // Box-Muller; 1 - u is never 0.
  const double radius = std::sqrt(-2 * std::log(1 - draws.uniform()));
  return radius * std::cos(2 * std::numbers::pi * draws.uniform());
}

/// Draws the logarithm of a number from the distribution Gamma(alpha, 1), because the number itself
/// may be too small for a double. Source: Marsaglia and Tsang, "A simple method for generating
/// gamma variables", 2000.
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

/// Draws the factor of a batch, rounded to float32 as in torchvision.
double draw_factor(const Variant& options, DrawStream& draws) {
  return static_cast<float>(draw_beta(options.as<MixOptions>().alpha, draws));
}

BatchMix draw_mix_up(const Variant& options, Size2 size, DrawStream& draws) {
  return mix_up(draw_factor(options, draws), size);
}

BatchMix draw_cut_mix(const Variant& options, Size2 size, DrawStream& draws) {
  const double lambda = draw_factor(options, draws);
  const std::int64_t x = draws.below(size.w);
  return cut_mix(lambda, x, draws.below(size.h), size);
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

BatchTransformKind mix_up_transform() {
  static const ObjectTable table =
      object_table<MixOptions>("MixUp",
                               "Each sample becomes factor * itself + (1 - factor) * the sample "
                               "before it in the batch. Its targets are mixed in the same way.",
                               {field("alpha", &MixOptions::alpha, kFactorDoc).above(0)});
  return {&table, draw_mix_up};
}

BatchTransformKind cut_mix_transform() {
  static const ObjectTable table = object_table<MixOptions>(
      "CutMix",
      "A rectangle of each sample is replaced by the same rectangle of the sample before it in the "
      "batch. The whole batch has one rectangle, and targets are mixed in proportion to its area. "
      "Not for targets that are values.",
      {field("alpha", &MixOptions::alpha, kAreaDoc).above(0)});
  return {&table, draw_cut_mix, true};
}

}  // namespace dpt
