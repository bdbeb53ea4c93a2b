// log.noise_scale, the gradient noise scale: McCandlish et al. 2018, "An Empirical Model of
// Large-Batch Training", appendix A. It compares the norm of a batch's gradient with the norms of
// the gradients of its parts. Each part has its own floats.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/measurements/measurement.h"

namespace dpt {

/// Estimates of one step, or their averages.
struct GradientNoise {
  double grad_sq = 0;   ///< |G|^2, of the gradient over the data distribution
  double variance = 0;  ///< tr(Sigma), of the gradients of single samples
  /// Returns tr(Sigma) / |G|^2, in samples. Returns nothing if noise hides one of the two, that is,
  /// if |G|^2 is not above 0 or the variance is below 0.
  std::optional<double> scale() const;
};

/// Estimates the noise from squared norms of mean gradients. `small_sq` is the mean of those of the
/// parts, weighted by their numbers of samples; `small` is the mean number of samples of a part.
/// `big_sq` is the squared norm for all `big` samples. REQUIRES: 0 < small < big.
GradientNoise noise_of(double small_sq, double small, double big_sq, double big);

/// Layout of the floats of each part.
struct PartLayout {
  explicit PartLayout(const Job& job);

  /// Number of floats before the norms: StepMetrics::weight and the two floats of
  /// StepMetrics::labelled. The norms come after them, in the order of `buckets`.
  static constexpr std::int64_t kCounts = 3;
  /// Returns the index of the first float of a part.
  std::int64_t begin(std::int64_t part) const { return part * (kCounts + norms); }
  std::int64_t floats() const { return begin(parts); }

  std::int64_t parts, norms = 0;
  std::vector<std::vector<Range>> buckets;  ///< unfrozen ranges of each bucket (gradient_buckets())
};

/// Returns the noise of a step whose parts were measured. Unset if the parts are not smaller than
/// the batch, or if a number is non-finite. Leaves out samples that do not count in the loss.
std::optional<GradientNoise> noise_of(const StepResult& result, std::span<const float> floats,
                                      const PartLayout& layout, bool is_weighted);

}  // namespace dpt
