// The conditions of `--require` on results, and their outcomes: the rows of a verdict.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/gate/baseline.h"
#include "engine/metrics/metric.h"

namespace dpt {

/// A condition and its outcome. Its bound is a number (`val/accuracy>=0.90`) or follows from the
/// baseline's value (`>=baseline-0.005`, `<=baseline*1.02`).
struct Condition {
  enum class Outcome : std::uint8_t { unchecked, met, not_met };

  std::string text, metric, relation;
  std::string results;  ///< one of kResultSplits: "test", "last/val", ...
  std::string asked;    ///< bound as it was written, without spaces: "baseline-0.005"
  bool of_baseline = false;
  double factor = 1;  ///< factor on the baseline's value
  double bound = 0;   ///< the bound itself, or the number added to factor * baseline

  Outcome outcome = Outcome::unchecked;
  std::string found, baseline, limit;  ///< value, baseline's value and bound as text, if known
  std::string message;  ///< values that meet the condition, or why it is not met or not checked

  /// Returns "test/accuracy".
  std::string name() const { return results + "/" + metric; }
  /// Returns the split of the data: "val" for "last/val".
  std::string split() const { return results.substr(results.rfind('/') + 1); }
  double bound_for(double baseline_value) const {
    return of_baseline ? factor * baseline_value + bound : bound;
  }
  /// Returns true if the value meets the condition; false for NaN.
  bool is_met(double value, double baseline_value = 0) const;
};

/// Parses a condition. Throws ErrorKind::usage with the expected form.
Condition parse_condition(const std::string& text);
/// Throws ErrorKind::usage if a condition is on a metric that the run does not measure. The message
/// lists the measured ones.
void check_metrics_of(const std::vector<Condition>& conditions, const MetricSet& metrics);
/// Throws ErrorKind::data if a condition needs the results of the best epoch but they are unknown.
/// `owner`: "--baseline runs/a", "runs/a".
void check_best_is_known(const Condition& condition, const RunResults& results,
                         const std::string& owner);

/// Sets `value` to the number in `results` (RunResults::by_split) that the condition is about.
/// Returns the reason if there is no finite number, otherwise an empty string. `of` is the baseline
/// that has the results, or null for this run. Throws ErrorKind::data if the baseline's value has
/// another type.
std::string find_value(const Condition& condition, const Json& results, const Baseline* of,
                       double& value);
/// Sets the outcomes. REQUIRES: the baseline has all values on which bounds depend.
void judge(std::vector<Condition>& conditions, const Json& results, const Baseline& baseline);

/// Returns a line for each condition that is not met: "--require test/loss<1: not met: the value is
/// 2".
std::string problems_of(const std::vector<Condition>& conditions);

}  // namespace dpt
