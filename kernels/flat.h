// Kernels over the flat buffers of parameters and gradients, and the values of a step that are in
// device memory. A part of the Backend contract (kernels/backend.h, whose rules apply).
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kernels/base/types.h"

namespace dpt {

inline constexpr int kMaxOptimizerStates = 3;

/// Constants of one update of one parameter group, computed in double on the host. They are a
/// FormulaStep of the optimizer's formula (kernels/common/optimizers/formula.h), and only the
/// formula reads them.
struct alignas(16) UpdateStep {
  std::byte bytes[64];
};

/// Elements [begin, begin + count) of the flat buffers, all updated with the same constants.
struct UpdateRange {
  std::int64_t begin = 0, count = 0;
  int group = 0;  ///< index in OptimizerArgs::steps
  bool operator==(const UpdateRange&) const = default;
};

/// Optimizer of flat buffers: a formula and the ranges that it updates. Elements outside all ranges
/// stay unchanged.
struct OptimizerDesc {
  int formula = 0;                  ///< formula_index (kernels/common/optimizers/formulas.h)
  std::vector<UpdateRange> ranges;  ///< in order of `begin`, without overlap
};

/// Outcome of a step's update.
enum class UpdateOutcome : std::uint8_t {
  applied,  ///< written; all weights and optimizer state are finite
  refused,  ///< the loss, the gradient or a running statistic was non-finite; nothing was written
  broken,   ///< written, and a weight or optimizer state is no longer finite
  withheld  ///< nothing was written because an earlier step was refused or broken
};

/// Record, in device memory, of a step that went wrong. While it is set, steps queued later change
/// nothing. The host resets it to zero once it has seen it.
struct UpdateGuard {
  std::int64_t bad_step = 0;  ///< StepScalars::step of the refused or broken update; 0 = none
};

/// Maximum number of sums that a loss computes for metrics (LossDesc::sums).
inline constexpr int kMaxMetricSums = 9;

/// Sum in the flat gradient buffer, stored as the sum of two floats. It is exact for counts: `high`
/// is a multiple of kDigit and `low` is below kDigit. So adding up the floats of up to 65,536 parts
/// with up to 2^32 samples, in any order, never rounds. Any other sum is entirely in `high`.
struct SplitSum {
  static constexpr std::int64_t kDigit = 256;
  float high = 0, low = 0;

  constexpr double value() const { return static_cast<double>(high) + static_cast<double>(low); }
  /// Returns the sum as an integer. REQUIRES: the sum is a count from 0 to 2^32.
  constexpr std::int64_t count() const {
    return static_cast<std::int64_t>(high) + static_cast<std::int64_t>(low);
  }
  constexpr void add_count(std::int64_t more) {
    const std::int64_t total = count() + more;
    low = static_cast<float>(total % kDigit);
    high = static_cast<float>(total - total % kDigit);
  }
  /// Adds to the sum, rounding to fp32. The result is infinite above the range of fp32.
  constexpr void add(double more) { high = static_cast<float>(static_cast<double>(high) + more); }
  bool operator==(const SplitSum&) const = default;
};

/// Values of a step that are summed over ranks together with the gradients. They come after the
/// gradients in the flat gradient buffer.
struct StepMetrics {
  float loss_sum = 0;    ///< sum of the samples' losses
  float weight = 0;      ///< sum of the samples' weights: the mean loss is loss_sum / weight
  SplitSum labelled;     ///< number of samples that count, that is, whose label is not ignored
  SplitSum count;        ///< number of samples
  float stop_votes = 0;  ///< number of ranks that were asked to stop after this step
  // Written after the sum, by `check_running` and by the optimizer.
  /// 0 if all running statistics stay finite. Otherwise identifies the first statistic that the
  /// update would make non-finite: kFirstStatistic minus the statistic's offset from the beginning
  /// of the first RunningRange.
  std::uint32_t bad_statistic = 0;
  float outcome = 0;   ///< an UpdateOutcome
  float bad_norm = 0;  ///< StepScalars::grad_norm of a refused or broken update
  /// Sums over the samples that count, in the order of LossDesc::sums.
  SplitSum sums[kMaxMetricSums];
  float padding[4] = {};  ///< fills whole cache lines

  static constexpr std::uint32_t kFirstStatistic = 0xffffffff;
  double mean_loss() const { return static_cast<double>(loss_sum) / weight; }
  /// Returns true if no sample counts, so that the mean is undefined.
  constexpr bool is_weightless() const { return weight == 0 && count.count() > 0; }
  /// Returns the factor for gradients, or 0 if no sample counts. An infinite factor would turn the
  /// zeros in the gaps between the parameters' gradients into NaN, which no step would overwrite.
  constexpr float inverse_weight() const { return weight == 0 ? 0.0F : 1.0F / weight; }
};
static_assert(sizeof(StepMetrics) == 128);

/// Values that change from step to step. They are in device memory, so that a captured graph can
/// read them. Values that only the optimizer's formula reads are in UpdateStep.
struct StepScalars {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  ///< counted from 1
  float inverse_count = 0;
  float max_norm = 0;   ///< gradient clip; 0 = none
  float grad_norm = 0;  ///< written by `grad_norm`
  float clip = 1;       ///< written by `grad_norm`: min(1, max_norm / (norm + 1e-6))
  float finite = 1;     ///< written by `grad_norm`: 0 if a gradient is non-finite
};

/// Flat buffers of an update, and values of its step.
struct OptimizerArgs {
  DevPtr params, grads;  ///< fp32; params are updated
  /// fp32 states in the formula's order. Those that the formula does not have may be null.
  std::array<DevPtr, kMaxOptimizerStates> states;
  DevPtr scalars;         ///< StepScalars; gradients are multiplied by `clip` first
  DevPtr steps;           ///< one UpdateStep per group
  DevPtr params16;        ///< bf16 copy of params, updated with them; or null
  DevPtr metrics, guard;  ///< StepMetrics and UpdateGuard; if both are null, nothing is checked
};

/// Optimizer on one device. It may hold device memory, so create it once.
class OptimizerOp {
 public:
  virtual ~OptimizerOp() = default;
  /// Queues one update. If `args.guard` is given, decides whether to write it (decide_update),
  /// checks every written value, and writes the UpdateOutcome to `args.metrics`.
  virtual void step(const OptimizerArgs& args) = 0;
};

/// Computes the 2-norms of ranges of a flat buffer on one device. It may hold device memory, so
/// create it once.
class RangeNormsOp {
 public:
  virtual ~RangeNormsOp() = default;
  /// Queues norms[i] = 2-norm of range i of `values`. Both are fp32. Adds in the order of
  /// kernels/common/range_norms.h, which gives the same bits on every device.
  virtual void run(DevPtr values, DevPtr norms) = 0;
};

/// One addition of a tree sum: part `left` += part `right`.
struct TreeAdd {
  int left = 0, right = 0;
};

/// One step of merging the moments of several sets of values. The moments are (mean, sum of squared
/// deviations) for every channel. The moments of `right` are merged into those of `left`. Method:
/// Chan, Golub, LeVeque (1979).
struct MomentMerge {
  int left = 0, right = 0;
  float right_share = 0;  ///< number of right's values / number of all values
  float cross = 0;        ///< left's number of values * right's number / number of all values
};

/// Number of updates. It is stored among the flat fp32 parameters as the bits of a float, because
/// fp32 cannot count beyond 2^24. It stops at the bits of the largest finite float.
struct UpdateCounter {
  static constexpr std::int32_t kMax = 0x7f7fffff;
  static constexpr std::int32_t count(float bits) { return std::bit_cast<std::int32_t>(bits); }
  static constexpr float bits(std::int64_t count) {
    const auto low = count < 0 ? 0 : count;
    return std::bit_cast<float>(low < kMax ? static_cast<std::int32_t>(low) : kMax);
  }
  /// Returns the counter after one more update.
  static constexpr float next(float bits_now) {
    return bits(static_cast<std::int64_t>(count(bits_now)) + 1);
  }
};

/// Range of running statistics that follow the same rule.
struct RunningRange {
  std::int64_t begin = 0, end = 0;  ///< floats, from the beginning of the parameters
  float momentum = 0.1F;            ///< share of the batch's statistics; if below 0, 1 / updates
  std::int64_t counter = 0;         ///< offset of the number of updates (UpdateCounter)
};

struct RunningArgs {
  DevPtr params;   ///< flat parameters, which contain the running statistics
  DevPtr sums;     ///< flat gradients, with the statistics times samples at the same offsets
  DevPtr metrics;  ///< StepMetrics, for the number of samples and the outcome of the step
};

/// Batch norm folded into the layer before it, whose weight has one row per channel. With s = gamma
/// / sqrt(running_var + eps), the folded weight is s * weight, and the folded bias is s * (bias -
/// running_mean) + beta. Offsets are in floats.
struct NormFold {
  static constexpr std::int64_t kNone = -1;
  std::int64_t channels = 0, row = 0;  ///< number of rows of the weight, and length of a row
  // Offsets in the flat parameters.
  std::int64_t weight = 0, running_mean = 0, running_var = 0;
  std::int64_t bias = kNone, gamma = kNone, beta = kNone;  ///< kNone if missing
  std::int64_t to_weight = 0, to_bias = 0;                 ///< offsets in the folded parameters
  float eps = 1e-5F;
};

class FlatKernels {
 public:
  virtual ~FlatKernels() = default;
  // Flat fp32 kernels over `count` elements.
  /// Sets to[i] = a[i] + b[i]. The three may be the same memory.
  virtual void add(DevPtr to, DevPtr a, DevPtr b, std::int64_t count) = 0;
  /// Does `additions` in order, then copies parts[0] to each of `outs`, which may include parts.
  /// Overwrites the parts. The memory may belong to another backend (can_use_memory_of).
  virtual void tree_sum(std::span<const DevPtr> parts, std::span<const TreeAdd> additions,
                        std::span<const DevPtr> outs, std::int64_t count) = 0;
  /// Does `merges` in order, then copies parts[0] to each of `outs`, which may include parts.
  /// Overwrites the parts. Each part has 2 * channels floats.
  virtual void merge_moments(std::span<const DevPtr> parts, std::span<const MomentMerge> merges,
                             std::span<const DevPtr> outs, std::int64_t channels) = 0;
  /// Sets StepMetrics::bad_statistic if `update_running` would make a running statistic non-finite.
  virtual void check_running(std::span<const RunningRange> ranges, const RunningArgs& args) = 0;
  /// Moves the running statistics of every range towards those of the batch, as
  /// torch.nn.BatchNorm2d does, and increments each UpdateCounter in `counters`. Changes nothing
  /// unless metrics.outcome is `applied` and check_running found all statistics finite.
  virtual void update_running(std::span<const RunningRange> ranges, Range counters,
                              const RunningArgs& args) = 0;
  /// Computes the weights and biases that `folds` describe from the flat parameters. Writes them to
  /// `folded`.
  virtual void fold_norms(std::span<const NormFold> folds, DevPtr params, DevPtr folded) = 0;
  /// Sets to[i] = from[i] rounded to bf16, ties to even.
  virtual void to_bf16(DevPtr to, DevPtr from, std::int64_t count) = 0;
  /// Sets scalars.grad_norm to the 2-norm of grads, summed in a fixed order. Sets scalars.clip from
  /// it and max_norm (torch.nn.utils.clip_grad_norm_). `scalars` is a StepScalars.
  virtual void grad_norm(DevPtr grads, std::int64_t count, DevPtr scalars) = 0;
  /// Multiplies grads by StepMetrics::inverse_weight(). Used for the gradients of a mean whose
  /// divisor is known only after the sum over all ranks.
  virtual void divide_by_weight(DevPtr grads, std::int64_t count, DevPtr metrics) = 0;
  /// Clips every value to [-limit, limit] (torch.nn.utils.clip_grad_value_). A NaN stays NaN.
  virtual void clip_values(DevPtr values, float limit, std::int64_t count) = 0;
  virtual std::unique_ptr<OptimizerOp> optimizer(const OptimizerDesc& desc) = 0;
  virtual std::unique_ptr<RangeNormsOp> range_norms(std::span<const Range> ranges) = 0;
};

}  // namespace dpt
