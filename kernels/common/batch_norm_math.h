// The formulas of batch normalisation (Ioffe, Szegedy 2015; torch.nn.BatchNorm2d), written once for
// all backends. The moments of a channel are its mean and its sum of squared deviations.
#pragma once

#include <cmath>

#include "kernels/base/host_device.h"
#include "kernels/flat.h"

namespace dpt {

/// Merges the moments of two sets of values (Chan, Golub, LeVeque 1979).
DPT_HOST_DEVICE inline void merge_moment(const MomentMerge& merge, float& mean, float& squares,
                                         float other_mean, float other_squares) {
  const float difference = other_mean - mean;
  mean += difference * merge.right_share;
  squares += other_squares + difference * difference * merge.cross;
}

/// Returns the factors that merge the moments of two sets of values. Either set may be empty.
inline MomentMerge moment_merge(int left, int right, double left_values, double right_values) {
  MomentMerge merge{left, right, 0, 0};
  const double both = left_values + right_values;
  if (both == 0) return merge;
  merge.right_share = static_cast<float>(right_values / both);
  merge.cross = static_cast<float>(left_values / both * right_values);
  return merge;
}

/// Returns 1 / standard deviation. Pass 1 as `values` if `squares` is already a variance.
DPT_HOST_DEVICE inline float inverse_deviation(float squares, float values, float eps) {
  return 1.0F / std::sqrt(squares / values + eps);
}

/// Factor on a channel's weights, and its new bias, when batch norm is folded into the layer.
struct FoldedChannel {
  float scale, bias;
};
DPT_HOST_DEVICE inline FoldedChannel folded_channel(const NormFold& fold, const float* params,
                                                    std::int64_t c) {
  const float gamma = fold.gamma >= 0 ? params[fold.gamma + c] : 1.0F;
  const float beta = fold.beta >= 0 ? params[fold.beta + c] : 0.0F;
  const float bias = fold.bias >= 0 ? params[fold.bias + c] : 0.0F;
  const float scale = gamma * inverse_deviation(params[fold.running_var + c], 1.0F, fold.eps);
  return {scale, scale * (bias - params[fold.running_mean + c]) + beta};
}

/// Returns the unbiased variance times `samples`. This is the contribution to the running
/// statistics: see ParamArgs::gradient.
DPT_HOST_DEVICE inline float unbiased_sum(float squares, float values, float samples) {
  return squares / (values > 1.0F ? values - 1.0F : 1.0F) * samples;
}

/// Returns the momentum of a range in update number `update`, counted from 1.
DPT_HOST_DEVICE inline float momentum_at(const RunningRange& range, std::int32_t update) {
  return range.momentum < 0 ? 1.0F / static_cast<float>(update) : range.momentum;
}

/// These two return the momentum of the next update, and that of the update counted last.
DPT_HOST_DEVICE inline float next_momentum(const RunningRange& range, const float* params) {
  return momentum_at(range, UpdateCounter::count(UpdateCounter::next(params[range.counter])));
}
DPT_HOST_DEVICE inline float counted_momentum(const RunningRange& range, const float* params) {
  return momentum_at(range, UpdateCounter::count(params[range.counter]));
}

/// Returns true if this step updates the running statistics.
DPT_HOST_DEVICE inline bool updates_running(const StepMetrics& metrics) {
  return metrics.outcome == static_cast<float>(UpdateOutcome::applied) &&
         metrics.bad_statistic == 0;
}

/// Returns the updated running statistic. `sum` is the sum of the step's contributions, which cover
/// `samples` samples.
DPT_HOST_DEVICE inline float running_update(float running, float sum, float samples,
                                            float momentum) {
  return (1.0F - momentum) * running + momentum * (sum / samples);
}

}  // namespace dpt
