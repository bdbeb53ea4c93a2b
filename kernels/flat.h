// Kernels over the flat buffers of parameters and gradients, and the numbers of a step that lie in
// device memory: a part of the Backend contract (kernels/backend.h, whose rules apply).
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

/// Constants of one update of one parameter group: a FormulaStep of the optimizer's formula
/// (kernels/common/optimizers/formula.h), which nobody else reads. Computed in double on the host.
struct alignas(16) UpdateStep {
  std::byte bytes[64];
};

/// Elements [begin, begin + count) of the flat buffers, which are updated alike.
struct UpdateRange {
  std::int64_t begin = 0, count = 0;
  int group = 0;  ///< which of OptimizerArgs::steps is theirs
  bool operator==(const UpdateRange&) const = default;
};

/// An optimizer of flat buffers: a formula, and what it updates. What is in no range, it does not
/// touch.
struct OptimizerDesc {
  int formula = 0;                  ///< formula_index (kernels/common/optimizers/formulas.h)
  std::vector<UpdateRange> ranges;  ///< in order of `begin`, without overlap
};

/// Outcome of a step's update.
enum class UpdateOutcome : std::uint8_t {
  applied,  ///< written; all weights and optimizer state are finite
  refused,  ///< the loss, the gradient or a running statistic was non-finite; nothing was written
  broken,   ///< written, and a weight or optimizer state is no longer finite
  withheld  ///< an earlier step was refused or broken: nothing was written
};

/// Remembers, in device memory, that a step went wrong, so that none of the steps queued after it
/// changes anything before the host has seen it. The host sets it back to zero.
struct UpdateGuard {
  std::int64_t bad_step = 0;  ///< StepScalars::step of the refused or broken update; 0 = none
};

/// Sums that a loss adds up for metrics (LossDesc::sums), at most.
inline constexpr int kMaxMetricSums = 9;

/// Sum in the flat gradient buffer, as the sum of two floats. It is exact for counts: `high` is a
/// multiple of kDigit and `low` below it, so that adding up the floats of up to 65,536 parts with
/// up to 2^32 samples, in any order, never rounds. Any other sum is all in `high`.
struct SplitSum {
  static constexpr std::int64_t kDigit = 256;
  float high = 0, low = 0;

  constexpr double value() const { return static_cast<double>(high) + static_cast<double>(low); }
  /// REQUIRES: it is a count, from 0 to 2^32.
  constexpr std::int64_t count() const {
    return static_cast<std::int64_t>(high) + static_cast<std::int64_t>(low);
  }
  constexpr void add_count(std::int64_t more) {
    const std::int64_t total = count() + more;
    low = static_cast<float>(total % kDigit);
    high = static_cast<float>(total - total % kDigit);
  }
  /// Rounds to fp32: infinite above its range.
  constexpr void add(double more) { high = static_cast<float>(static_cast<double>(high) + more); }
  bool operator==(const SplitSum&) const = default;
};

/// The first floats after the gradients in the flat gradient buffer; summed with them.
struct StepMetrics {
  float loss_sum = 0;    ///< sum of the samples' losses
  float weight = 0;      ///< sum of the samples' weights: the mean loss is loss_sum / weight
  SplitSum labelled;     ///< samples that count: their label is not ignored
  SplitSum count;        ///< samples
  float stop_votes = 0;  ///< ranks that were asked to stop after this step
  // Written after the sum, by `check_running` and by the optimizer.
  /// 0, or kFirstStatistic minus the place, after the beginning of the first RunningRange, of the
  /// first running statistic that the update would make non-finite.
  std::uint32_t bad_statistic = 0;
  float outcome = 0;   ///< an UpdateOutcome
  float bad_norm = 0;  ///< StepScalars::grad_norm of a refused or broken update
  /// Sums over the samples that count, in the order of LossDesc::sums.
  SplitSum sums[kMaxMetricSums];
  float padding[4] = {};  ///< fills whole cache lines

  static constexpr std::uint32_t kFirstStatistic = 0xffffffff;
  double mean_loss() const { return static_cast<double>(loss_sum) / weight; }
  /// Samples, none of which counts: the mean is not defined.
  constexpr bool is_weightless() const { return weight == 0 && count.count() > 0; }
  /// Returns the factor of gradients; 0 if no sample counts, so that the zeros between the
  /// parameters' gradients, which no step writes again, stay zeros.
  constexpr float inverse_weight() const { return weight == 0 ? 0.0F : 1.0F / weight; }
};
static_assert(sizeof(StepMetrics) == 128);

/// Values that change from step to step, in device memory so that a captured graph can read them.
/// Values that only the optimizer's formula reads are in UpdateStep.
struct StepScalars {
  std::int64_t epoch = 0;
  std::int64_t step = 0;  ///< counted from 1
  float inverse_count = 0;
  float max_norm = 0;   ///< gradient clip; 0 = none
  float grad_norm = 0;  ///< written by `grad_norm`
  float clip = 1;       ///< written by `grad_norm`: min(1, max_norm / (norm + 1e-6))
  float finite = 1;     ///< written by `grad_norm`: 0 when a gradient is not finite
};

/// The flat buffers of an update, and the numbers of its step.
struct OptimizerArgs {
  DevPtr params, grads;  ///< fp32; params are updated
  /// fp32, in the formula's order; those that it does not have may be null.
  std::array<DevPtr, kMaxOptimizerStates> states;
  DevPtr scalars;         ///< StepScalars; gradients are multiplied by `clip` first
  DevPtr steps;           ///< an UpdateStep for each group
  DevPtr params16;        ///< bf16 copy of params, written with them; or null
  DevPtr metrics, guard;  ///< StepMetrics and UpdateGuard; both null: nothing is checked
};

/// An optimizer on one device. Made once: it may hold device memory.
class OptimizerOp {
 public:
  virtual ~OptimizerOp() = default;
  /// Queues one update. With `args.guard`, decides whether it is written (decide_update), checks
  /// every value that it writes, and writes the UpdateOutcome to `args.metrics`.
  virtual void step(const OptimizerArgs& args) = 0;
};

/// The 2-norms of ranges of a flat buffer, on one device. Made once: it may hold device memory.
class RangeNormsOp {
 public:
  virtual ~RangeNormsOp() = default;
  /// Queues norms[i] = 2-norm of range i of `values`. Summed up in the order of
  /// kernels/common/range_norms.h, with the same bits on every device. Both are fp32.
  virtual void run(DevPtr values, DevPtr norms) = 0;
};

/// One addition of a tree sum: part `left` += part `right`.
struct TreeAdd {
  int left = 0, right = 0;
};

/// One step of merging the moments of several sets of values, as (mean, sum of squared deviations)
/// for every channel: those of `right` go into `left`. Chan, Golub, LeVeque (1979).
struct MomentMerge {
  int left = 0, right = 0;
  float right_share = 0;  ///< right's values among both
  float cross = 0;        ///< left's values times right's, over both
};

/// Count of updates among the flat fp32 parameters: the bits of a float are those of an integer,
/// because fp32 does not count beyond 2^24. It stops at the largest bits of a finite float.
struct UpdateCounter {
  static constexpr std::int32_t kMax = 0x7f7fffff;
  static constexpr std::int32_t count(float bits) { return std::bit_cast<std::int32_t>(bits); }
  static constexpr float bits(std::int64_t count) {
    const auto low = count < 0 ? 0 : count;
    return std::bit_cast<float>(low < kMax ? static_cast<std::int32_t>(low) : kMax);
  }
  /// The counter after one more update.
  static constexpr float next(float bits_now) {
    return bits(static_cast<std::int64_t>(count(bits_now)) + 1);
  }
};

/// A stretch of running statistics that follow the same rule.
struct RunningRange {
  std::int64_t begin = 0, end = 0;  ///< floats, from the beginning of the parameters
  float momentum = 0.1F;  ///< the new statistics' part; below 0: 1 / the number of updates so far
  std::int64_t counter = 0;  ///< place of the count of those updates (UpdateCounter)
};

struct RunningArgs {
  DevPtr params;   ///< the flat parameters, in which the running statistics lie
  DevPtr sums;     ///< the flat gradients: at the same places the statistics times samples
  DevPtr metrics;  ///< StepMetrics: number of samples, and whether the step was applied
};

/// A batch norm folded into the layer before it, which has a row of weights for each channel: with
/// s = gamma / sqrt(running_var + eps), its weight becomes s * weight, and its bias
/// s * (bias - running_mean) + beta. Places are in floats.
struct NormFold {
  static constexpr std::int64_t kNone = -1;
  std::int64_t channels = 0, row = 0;  ///< rows of the weight, and the length of one
  // In the flat parameters.
  std::int64_t weight = 0, running_mean = 0, running_var = 0;
  std::int64_t bias = kNone, gamma = kNone, beta = kNone;  ///< those that there are
  std::int64_t to_weight = 0, to_bias = 0;                 ///< in the folded parameters
  float eps = 1e-5F;
};

class FlatKernels {
 public:
  virtual ~FlatKernels() = default;
  // Flat fp32 kernels over `count` elements.
  /// to[i] = a[i] + b[i]; any of the three may be the same memory.
  virtual void add(DevPtr to, DevPtr a, DevPtr b, std::int64_t count) = 0;
  /// Does `additions` in order, then copies parts[0] to each of `outs`, which may be parts. The
  /// parts are clobbered. The memory may be another backend's (can_use_memory_of).
  virtual void tree_sum(std::span<const DevPtr> parts, std::span<const TreeAdd> additions,
                        std::span<const DevPtr> outs, std::int64_t count) = 0;
  /// Merges the moments of parts in order, then copies parts[0] to each of `outs`, which may be
  /// parts. The parts, 2 * channels floats each, are clobbered.
  virtual void merge_moments(std::span<const DevPtr> parts, std::span<const MomentMerge> merges,
                             std::span<const DevPtr> outs, std::int64_t channels) = 0;
  /// Sets StepMetrics::bad_statistic if `update_running` would make a running statistic non-finite.
  virtual void check_running(std::span<const RunningRange> ranges, const RunningArgs& args) = 0;
  /// The running statistics of every range approach those of the batch, as torch.nn.BatchNorm2d's
  /// do, and each UpdateCounter in [counters) grows by one. Nothing changes unless metrics.outcome
  /// is `applied` and check_running found them finite.
  virtual void update_running(std::span<const RunningRange> ranges, Range counters,
                              const RunningArgs& args) = 0;
  /// Writes the weights and biases of `folds` to `folded`, from the flat parameters.
  virtual void fold_norms(std::span<const NormFold> folds, DevPtr params, DevPtr folded) = 0;
  /// to[i] = from[i] rounded to bf16, ties to even.
  virtual void to_bf16(DevPtr to, DevPtr from, std::int64_t count) = 0;
  /// scalars.grad_norm = 2-norm of grads in a fixed summation order; scalars.clip from max_norm
  /// (torch.nn.utils.clip_grad_norm_). `scalars` is a StepScalars.
  virtual void grad_norm(DevPtr grads, std::int64_t count, DevPtr scalars) = 0;
  /// grads[i] *= StepMetrics::inverse_weight(): the gradients of a mean whose divisor was not known
  /// before the sum over all ranks.
  virtual void divide_by_weight(DevPtr grads, std::int64_t count, DevPtr metrics) = 0;
  /// Clips every value to [-limit, limit] (torch.nn.utils.clip_grad_value_); a NaN stays one.
  virtual void clip_values(DevPtr values, float limit, std::int64_t count) = 0;
  virtual std::unique_ptr<OptimizerOp> optimizer(const OptimizerDesc& desc) = 0;
  virtual std::unique_ptr<RangeNormsOp> range_norms(std::span<const Range> ranges) = 0;
};

}  // namespace dpt
