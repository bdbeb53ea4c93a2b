// The gradient noise scale (log.noise_scale): McCandlish et al. 2018, "An Empirical Model of
// Large-Batch Training", appendix A.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "engine/job/step.h"
#include "engine/replica/part_norms.h"

namespace dpt {

/// Estimates of one step, or their averages.
struct GradientNoise {
  double grad_sq = 0;   ///< |G|^2, of the gradient over the data distribution
  double variance = 0;  ///< tr(Sigma), of the gradients of single samples
  /// tr(Sigma) / |G|^2, in samples; nothing where noise hides either of the two: |G|^2 is not above
  /// 0, or the variance is below 0.
  std::optional<double> scale() const;
};

/// Of the squared norms of mean gradients: of parts of `small` samples on average, weighted by
/// their samples, and of all `big` samples. REQUIRES: 0 < small < big.
GradientNoise noise_of(double small_sq, double small, double big_sq, double big);

/// Of a step whose parts were measured; nothing where they are no smaller than the batch or a
/// number is not finite. Samples that do not count in the loss are left out.
std::optional<GradientNoise> noise_of(const StepResult& result, const PartLayout& layout,
                                      bool is_weighted);

/// The two averages over steps, each by itself.
class NoiseScale {
 public:
  explicit NoiseScale(const Job& job);
  bool is_on() const { return !layout_.is_empty(); }
  void add(const StepResult& result);
  /// Nothing before the first step that had an estimate.
  std::optional<GradientNoise> average() const;

 private:
  PartLayout layout_;
  bool is_weighted_;
  GradientNoise sums_;
  double weight_ = 0;  ///< of all steps in the sums
};

/// What keeps log.noise_scale from being measured, and what to do; empty where nothing does.
std::string problem_of_noise_scale(const Job& job);

}  // namespace dpt
