// Softmax with cross-entropy over one row of logits: the loss, the prediction and the gradient.
// Written without library exponentials, so that the compiler can run it on vectors and every host
// gives the same bits.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/base/host_device.h"

namespace dpt {

/// e^x for x <= 0, relative error below 2^-22; 0 below -87 (where fp32 leaves its normal range),
/// NaN for NaN. Method: x = n ln 2 + r with |r| <= ln 2 / 2, e^r by its Taylor polynomial, and 2^n
/// by putting n into the exponent bits.
DPT_HOST_DEVICE inline float exp_nonpositive(float x) {
  constexpr float kLog2E = 0x1.715476p+0F;
  // Adding it rounds to an integer that then stands in the low bits of the sum.
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
  // The builtin, and not std::bit_cast, because device code may call it.
  const std::uint32_t exponent = (__builtin_bit_cast(std::uint32_t, shifted) -
                                  __builtin_bit_cast(std::uint32_t, kRound) + 127U)
                                 << 23;
  // Selecting the bits, and not the product, leaves compilers no branch to make.
  const std::uint32_t keep = x < -87.0F ? 0U : ~0U;
  return p * __builtin_bit_cast(float, exponent& keep);
}

/// Element c of a row goes to partial result c % kSoftmaxLanes, so that vectors can work on it and
/// the order of every sum is fixed.
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

/// Sum of term(c) over a row, in double.
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
  std::int32_t index = 0;  ///< the first of equal ones
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

/// The probability of a class: `exponential` is e^logit, and `exponentials` their sum, both of
/// logits counted from the largest one.
DPT_HOST_DEVICE inline float softmax_output(float exponential, double exponentials) {
  return static_cast<float>(static_cast<double>(exponential) / exponentials);
}

/// The softmax of a row. `outputs` is other memory than the logits.
DPT_HOST_DEVICE inline void softmax_outputs(const float* logits, std::int32_t classes,
                                            float* outputs) {
  const float largest = largest_logit(logits, classes).value;
  for (std::int32_t c = 0; c < classes; ++c) outputs[c] = exp_nonpositive(logits[c] - largest);
  const double sum = lane_sum(classes, [&](std::int32_t c) { return outputs[c]; });
  for (std::int32_t c = 0; c < classes; ++c) outputs[c] = softmax_output(outputs[c], sum);
}

struct SoftmaxRow {
  float loss = 0;
  std::int32_t prediction = 0;  ///< index of the largest logit, the first of equal ones
};

/// Sums over all logits of a row that its loss and gradient need. Logits are counted from the
/// largest one.
struct SoftmaxSums {
  double exponentials = 0;  ///< sum of e^logit
  double logits = 0;        ///< sum of the logits times their weights; used with smoothing only
  float at_label = 0;       ///< the label's logit
};

/// The `weight` of torch.nn.CrossEntropyLoss.
struct ClassWeights {
  const float* weights = nullptr;  ///< null: all are 1, and the result has the bits of no weights
  double mean = 1;                 ///< mean over all classes

  DPT_HOST_DEVICE float of(std::int32_t c) const { return weights ? weights[c] : 1.0F; }
};

/// `weight` is that of the label, `mean_weight` that of all classes.
DPT_HOST_DEVICE inline float softmax_loss(const SoftmaxSums& sums, std::int32_t classes,
                                          float smoothing, float weight = 1,
                                          double mean_weight = 1) {
  const double log_sum = log(sums.exponentials);
  const double plain = (log_sum - static_cast<double>(sums.at_label)) * static_cast<double>(weight);
  if (smoothing <= 0) return static_cast<float>(plain);
  // The smoothing term is uniform over the classes: it needs the sum of the logits.
  const double uniform = log_sum * mean_weight - sums.logits / classes;
  return static_cast<float>(plain * (1.0 - static_cast<double>(smoothing)) +
                            uniform * static_cast<double>(smoothing));
}

/// scale * d loss / d logit of every element of a row.
class SoftmaxGradient {
 public:
  DPT_HOST_DEVICE SoftmaxGradient(double sum_of_exponentials, std::int32_t classes, float smoothing,
                                  float scale)
      : factor_(static_cast<float>(static_cast<double>(scale) / sum_of_exponentials)),
        spread_(smoothing / static_cast<float>(classes) * scale),
        at_label_((1.0F - smoothing) * scale) {}
  /// Makes the gradient with a weight of the label and a mean weight: the targets add up to `mass`.
  DPT_HOST_DEVICE SoftmaxGradient(double sum_of_exponentials, std::int32_t classes, float smoothing,
                                  float scale, float weight, double mean_weight)
      : SoftmaxGradient(sum_of_exponentials, classes, smoothing, scale) {
    const double mass = (1.0 - static_cast<double>(smoothing)) * static_cast<double>(weight) +
                        static_cast<double>(smoothing) * mean_weight;
    factor_ = static_cast<float>(static_cast<double>(scale) * mass / sum_of_exponentials);
    at_label_ *= weight;
  }
  /// For an element with this e^logit, of a class with this weight, that is not the label's.
  DPT_HOST_DEVICE float other(float exponential, float weight = 1) const {
    return exponential * factor_ - spread_ * weight;
  }
  /// Returns the value to subtract at the label.
  DPT_HOST_DEVICE float at_label() const { return at_label_; }

 private:
  float factor_, spread_, at_label_;
};

/// Cross-entropy of softmax(logits) against `label`, as torch.nn.CrossEntropyLoss with
/// label_smoothing and weight. Where `gradient` is given it gets scale * d loss / d logits; it may
/// be the same memory as logits. REQUIRES: 0 <= label < classes.
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

/// The targets of one sample with soft labels: probabilities, mixed with the uniform ones of
/// label_smoothing and multiplied by the weights of their classes.
struct SoftTargets {
  const float* values;
  float smoothing = 0;
  std::int32_t classes = 0;
  ClassWeights weights;

  DPT_HOST_DEVICE float of(std::int32_t c) const {
    return (values[c] * (1.0F - smoothing) + smoothing / static_cast<float>(classes)) *
           weights.of(c);
  }
  /// Returns the contribution of class c to the loss; its logit is counted from the largest one.
  DPT_HOST_DEVICE double loss(std::int32_t c, float logit, double log_sum) const {
    const float target = of(c);
    // A class that is impossible may have a logit of minus infinity.
    return target == 0 ? 0.0 : static_cast<double>(target) * (log_sum - static_cast<double>(logit));
  }
};

/// scale * d loss / d logit of a class whose target is `target`. `factor` is
/// soft_factor(...).
DPT_HOST_DEVICE inline float soft_gradient(float exponential, float factor, float target,
                                           float scale) {
  return exponential * factor - target * scale;
}
/// `mass`: what the targets add up to.
DPT_HOST_DEVICE inline float soft_factor(double sum_of_exponentials, double mass, float scale) {
  return static_cast<float>(static_cast<double>(scale) * mass / sum_of_exponentials);
}

/// Cross-entropy of softmax(logits) against probabilities, as torch.nn.CrossEntropyLoss with such
/// targets. `gradient` as in softmax_cross_entropy.
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
