// Softmax with cross-entropy over one row of logits: the loss, the prediction and the gradient.
// Written without library exponentials, so that the compiler can vectorise it and every host gives
// the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/base/host_device.h"

namespace dpt {

/// Returns e^x for x <= 0 with a relative error below 2^-22. Returns 0 below -87 (where fp32 leaves
/// its normal range), and NaN for NaN. Method: x = n ln 2 + r with |r| <= ln 2 / 2. Computes e^r by
/// its Taylor polynomial, and 2^n through the exponent bits.
DPT_HOST_DEVICE inline float exp_nonpositive(float x) {
  constexpr float kLog2E = 0x1.715476p+0F;
  // Adding kRound rounds to an integer, which the low bits of the sum then contain.
  constexpr float kRound = 0x1.8p+23F;
  constexpr float kLn2High = 0x1.62e4p-1F, kLn2Low = 0x1.7f7d1cp-20F;
  const float in = x < -87.0F ? -87.0F : x;
  const float shifted = in * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (in - n * kLn2High) - n * kLn2Low;
  float p = 1.0F / 5040;
  p = p * r + 1.0F / 720;
  p = p * r + 1.0F / 120;
  p = p * r + 1.0F / 24;
  p = p * r + 1.0F / 6;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  // Use the builtin instead of std::bit_cast, because device code may call the builtin.
  const std::uint32_t exponent = (__builtin_bit_cast(std::uint32_t, shifted) -
                                  __builtin_bit_cast(std::uint32_t, kRound) + 127U)
                                 << 23;
  // Select by masking the bits instead of by a condition, so that compilers create no branch.
  const std::uint32_t keep = x < -87.0F ? 0U : ~0U;
  return p * __builtin_bit_cast(float, exponent& keep);
}

/// Number of partial results of a row. Element c goes to partial result c % kSoftmaxLanes. This
/// allows vectors, and fixes the order of every sum.
inline constexpr std::int32_t kSoftmaxLanes = 8;

/// Calls use(c, lane) for every element of a row.
template <class Use>
DPT_HOST_DEVICE inline void for_lanes(std::int32_t classes, const Use& use) {
  std::int32_t c = 0;
  for (; c + kSoftmaxLanes <= classes; c += kSoftmaxLanes) {
    for (std::int32_t lane = 0; lane < kSoftmaxLanes; ++lane) use(c + lane, lane);
  }
  for (std::int32_t lane = 0; c + lane < classes; ++lane) use(c + lane, lane);
}

/// Returns the sum of term(c) over a row, in double.
template <class Term>
DPT_HOST_DEVICE inline double lane_sum(std::int32_t classes, const Term& term) {
  double sums[kSoftmaxLanes] = {};
  for_lanes(classes,
            [&](std::int32_t c, std::int32_t lane) { sums[lane] += static_cast<double>(term(c)); });
  double sum = 0;
  for (const double part : sums) sum += part;
  return sum;
}

struct LargestLogit {
  float value = 0;
  std::int32_t index = 0;  ///< the first index if several logits are equal
};

DPT_HOST_DEVICE inline LargestLogit largest_logit(const float* logits, std::int32_t classes) {
  float lanes[kSoftmaxLanes];
  for (float& lane : lanes) lane = logits[0];
  for_lanes(classes, [&](std::int32_t c, std::int32_t lane) {
    lanes[lane] = logits[c] > lanes[lane] ? logits[c] : lanes[lane];
  });
  LargestLogit largest{lanes[0], 0};
  for (const float lane : lanes) largest.value = lane > largest.value ? lane : largest.value;
  for (std::int32_t c = classes - 1; c >= 0; --c) {
    largest.index = logits[c] == largest.value ? c : largest.index;
  }
  return largest;
}

/// Returns the probability of a class. `exponential` is e^logit, and `exponentials` is the sum over
/// all classes. Logits are relative to the largest one.
DPT_HOST_DEVICE inline float softmax_output(float exponential, double exponentials) {
  return static_cast<float>(static_cast<double>(exponential) / exponentials);
}

/// Computes the softmax of a row. `outputs` must not be the memory of the logits.
DPT_HOST_DEVICE inline void softmax_outputs(const float* logits, std::int32_t classes,
                                            float* outputs) {
  const float largest = largest_logit(logits, classes).value;
  for (std::int32_t c = 0; c < classes; ++c) outputs[c] = exp_nonpositive(logits[c] - largest);
  const double sum = lane_sum(classes, [&](std::int32_t c) { return outputs[c]; });
  for (std::int32_t c = 0; c < classes; ++c) outputs[c] = softmax_output(outputs[c], sum);
}

struct SoftmaxRow {
  float loss = 0;
  std::int32_t prediction = 0;  ///< index of the largest logit; the first if several are equal
};

/// Sums over a row's logits, for the loss and the gradient. Logits are relative to the largest one.
struct SoftmaxSums {
  double exponentials = 0;  ///< sum of e^logit
  double logits = 0;        ///< sum of the logits times their weights; used with smoothing only
  float at_label = 0;       ///< the label's logit
};

/// Class weights, the `weight` of torch.nn.CrossEntropyLoss.
struct ClassWeights {
  const float* weights = nullptr;  ///< null: all are 1, with the same bits as without weights
  double mean = 1;                 ///< mean over all classes

  DPT_HOST_DEVICE float of(std::int32_t c) const { return weights ? weights[c] : 1.0F; }
};

/// Returns the loss of a row. `weight` is the weight of the label's class, and `mean_weight` is the
/// mean over all classes.
DPT_HOST_DEVICE inline float softmax_loss(const SoftmaxSums& sums, std::int32_t classes,
                                          float smoothing, float weight = 1,
                                          double mean_weight = 1) {
  const double log_sum = log(sums.exponentials);
  const double plain = (log_sum - static_cast<double>(sums.at_label)) * static_cast<double>(weight);
  if (smoothing <= 0) return static_cast<float>(plain);
  // The smoothing term is uniform over the classes, so it needs the sum of the logits.
  const double uniform = log_sum * mean_weight - sums.logits / classes;
  return static_cast<float>(plain * (1.0 - static_cast<double>(smoothing)) +
                            uniform * static_cast<double>(smoothing));
}

/// Gradient of every element of a row: scale * d loss / d logit.
class SoftmaxGradient {
 public:
  DPT_HOST_DEVICE SoftmaxGradient(double sum_of_exponentials, std::int32_t classes, float smoothing,
                                  float scale)
      : factor_(static_cast<float>(static_cast<double>(scale) / sum_of_exponentials)),
        spread_(smoothing / static_cast<float>(classes) * scale),
        at_label_((1.0F - smoothing) * scale) {}
  /// Prepares the gradient of the class-weighted loss. `weight` is the weight of the label's class,
  /// and `mean_weight` is the mean over all classes.
  DPT_HOST_DEVICE SoftmaxGradient(double sum_of_exponentials, std::int32_t classes, float smoothing,
                                  float scale, float weight, double mean_weight)
      : SoftmaxGradient(sum_of_exponentials, classes, smoothing, scale) {
    // The sum of the weighted, smoothed targets.
    const double mass = (1.0 - static_cast<double>(smoothing)) * static_cast<double>(weight) +
                        static_cast<double>(smoothing) * mean_weight;
    factor_ = static_cast<float>(static_cast<double>(scale) * mass / sum_of_exponentials);
    at_label_ *= weight;
  }
  /// Returns the gradient of an element other than the label's. `exponential` is its e^logit, and
  /// `weight` its class weight.
  DPT_HOST_DEVICE float other(float exponential, float weight = 1) const {
    return exponential * factor_ - spread_ * weight;
  }
  /// Returns the value to subtract from the result of `other` to get the gradient of the label's
  /// element.
  DPT_HOST_DEVICE float at_label() const { return at_label_; }

 private:
  float factor_, spread_, at_label_;
};

/// Computes the cross-entropy of softmax(logits) against `label`, like torch.nn.CrossEntropyLoss
/// with label_smoothing and weight. If `gradient` is given, writes scale * d loss / d logits to it.
/// It may be the memory of the logits. REQUIRES: 0 <= label < classes.
DPT_HOST_DEVICE inline SoftmaxRow softmax_cross_entropy(const float* logits, std::int32_t classes,
                                                        std::int32_t label, float smoothing,
                                                        float scale, float* gradient,
                                                        const ClassWeights& weights = {}) {
  SoftmaxRow row;
  const LargestLogit first = largest_logit(logits, classes);
  const float largest = first.value;
  row.prediction = first.index;
  SoftmaxSums sums;
  sums.at_label = logits[label] - largest;
  if (smoothing > 0 && weights.weights) {
    sums.logits = lane_sum(
        classes, [&](std::int32_t c) { return (logits[c] - largest) * weights.weights[c]; });
  } else if (smoothing > 0) {
    sums.logits = lane_sum(classes, [&](std::int32_t c) { return logits[c] - largest; });
  }
  if (gradient) {
    for (std::int32_t c = 0; c < classes; ++c) {
      gradient[c] = exp_nonpositive(logits[c] - largest);
    }
    sums.exponentials = lane_sum(classes, [&](std::int32_t c) { return gradient[c]; });
  } else {
    sums.exponentials =
        lane_sum(classes, [&](std::int32_t c) { return exp_nonpositive(logits[c] - largest); });
  }
  row.loss = softmax_loss(sums, classes, smoothing, weights.of(label), weights.mean);
  if (gradient && weights.weights) {
    const SoftmaxGradient of(sums.exponentials, classes, smoothing, scale, weights.of(label),
                             weights.mean);
    for (std::int32_t c = 0; c < classes; ++c) {
      gradient[c] = of.other(gradient[c], weights.weights[c]);
    }
    gradient[label] -= of.at_label();
  } else if (gradient) {
    const SoftmaxGradient of(sums.exponentials, classes, smoothing, scale);
    for (std::int32_t c = 0; c < classes; ++c) gradient[c] = of.other(gradient[c]);
    gradient[label] -= of.at_label();
  }
  return row;
}

/// Targets of one sample with soft labels: probabilities, mixed with the uniform distribution of
/// label_smoothing and multiplied by the class weights.
struct SoftTargets {
  const float* values;
  float smoothing = 0;
  std::int32_t classes = 0;
  ClassWeights weights;

  DPT_HOST_DEVICE float of(std::int32_t c) const {
    return (values[c] * (1.0F - smoothing) + smoothing / static_cast<float>(classes)) *
           weights.of(c);
  }
  /// Returns the contribution of class c to the loss. `logit` is relative to the largest one.
  DPT_HOST_DEVICE double loss(std::int32_t c, float logit, double log_sum) const {
    const float target = of(c);
    // A class with probability 0 may have a logit of minus infinity.
    return target == 0 ? 0.0 : static_cast<double>(target) * (log_sum - static_cast<double>(logit));
  }
};

/// Returns scale * d loss / d logit of a class with the given target. `factor` is the result of
/// soft_factor.
DPT_HOST_DEVICE inline float soft_gradient(float exponential, float factor, float target,
                                           float scale) {
  return exponential * factor - target * scale;
}
/// Returns the factor of soft_gradient. `mass` is the sum of the targets.
DPT_HOST_DEVICE inline float soft_factor(double sum_of_exponentials, double mass, float scale) {
  return static_cast<float>(static_cast<double>(scale) * mass / sum_of_exponentials);
}

/// Computes the cross-entropy of softmax(logits) against probabilities, like
/// torch.nn.CrossEntropyLoss with such targets. `gradient` is as in softmax_cross_entropy.
DPT_HOST_DEVICE inline SoftmaxRow soft_cross_entropy(const float* logits,
                                                     const SoftTargets& targets, float scale,
                                                     float* gradient) {
  const std::int32_t classes = targets.classes;
  const LargestLogit largest = largest_logit(logits, classes);
  const auto exponential = [&](std::int32_t c) {
    return exp_nonpositive(logits[c] - largest.value);
  };
  const double exponentials = lane_sum(classes, exponential);
  const double log_sum = log(exponentials);
  SoftmaxRow row;
  row.prediction = largest.index;
  row.loss = static_cast<float>(lane_sum(classes, [&](std::int32_t c) {
    return targets.loss(c, logits[c] - largest.value, log_sum);
  }));
  if (!gradient) return row;
  const double mass = lane_sum(classes, [&](std::int32_t c) { return targets.of(c); });
  const float factor = soft_factor(exponentials, mass, scale);
  for (std::int32_t c = 0; c < classes; ++c) {
    gradient[c] = soft_gradient(exponential(c), factor, targets.of(c), scale);
  }
  return row;
}

}  // namespace dpt
