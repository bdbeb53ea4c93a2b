// Softmax with cross-entropy over one row of logits: the loss, the prediction and the gradient.
// Written without library exponentials, so that the compiler can run it on vectors and every host
// gives the same bits.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "kernels/common/host_device.h"

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
  const std::uint32_t exponent =
      (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(kRound) + 127U) << 23;
  const float value = p * std::bit_cast<float>(exponent);
  return x < -87.0F ? 0.0F : value;
}

struct SoftmaxRow {
  float loss = 0;
  std::int32_t prediction = 0;  ///< index of the largest logit, the first of equal ones
};

/// Cross-entropy of softmax(logits) against `label`, as torch.nn.CrossEntropyLoss with
/// label_smoothing. Where `gradient` is given it gets scale * d loss / d logits; it may be the same
/// memory as logits. REQUIRES: 0 <= label < classes.
DPT_HOST_DEVICE inline SoftmaxRow softmax_cross_entropy(const float* logits, std::int32_t classes,
                                                        std::int32_t label, float smoothing,
                                                        float scale, float* gradient) {
  SoftmaxRow row;
  float largest = logits[0];
  for (std::int32_t c = 1; c < classes; ++c) {
    const bool larger = logits[c] > largest;
    largest = larger ? logits[c] : largest;
    row.prediction = larger ? c : row.prediction;
  }
  const float at_label = logits[label] - largest;
  // The smoothing term is uniform over the classes: it needs the sum of the shifted logits.
  double shifted_sum = 0;
  if (smoothing > 0) {
    for (std::int32_t c = 0; c < classes; ++c) {
      shifted_sum += static_cast<double>(logits[c] - largest);
    }
  }
  double sum = 0;
  if (gradient) {
    for (std::int32_t c = 0; c < classes; ++c) {
      gradient[c] = exp_nonpositive(logits[c] - largest);
    }
    for (std::int32_t c = 0; c < classes; ++c) sum += static_cast<double>(gradient[c]);
  } else {
    for (std::int32_t c = 0; c < classes; ++c) {
      sum += static_cast<double>(exp_nonpositive(logits[c] - largest));
    }
  }
  const double log_sum = std::log(sum);
  const double plain = log_sum - static_cast<double>(at_label);
  double loss = plain;
  if (smoothing > 0) {
    const double uniform = log_sum - shifted_sum / classes;
    loss =
        plain * (1.0 - static_cast<double>(smoothing)) + uniform * static_cast<double>(smoothing);
  }
  row.loss = static_cast<float>(loss);
  if (gradient) {
    const float factor = static_cast<float>(static_cast<double>(scale) / sum);
    const float spread = smoothing / static_cast<float>(classes) * scale;
    for (std::int32_t c = 0; c < classes; ++c) gradient[c] = gradient[c] * factor - spread;
    gradient[label] -= (1.0F - smoothing) * scale;
  }
  return row;
}

}  // namespace dpt
