// Conditions on results, as `--require` gives them, and their outcomes: the rows of a verdict.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/gate/baseline.h"
#include "engine/metrics/metric.h"

namespace dpt {

/// A condition such as `val/accuracy>=0.90`, or with a bound that follows from the baseline's value
/// (`>=baseline-0.005`, `<=baseline*1.02`), and its outcome.
struct Condition {
  enum class Outcome : std::uint8_t { unchecked, met, not_met };

  std::string text, metric, relation;
  std::string results;  ///< one of kResultSplits: "test", "last/val", ...
  std::string asked;    ///< bound as it was written, without spaces: "baseline-0.005"
  bool of_baseline = false;
  double factor = 1;  ///< multiplies the baseline's value
  double bound = 0;   ///< the bound itself, or what is added to factor * baseline

  Outcome outcome = Outcome::unchecked;
  std::string found, baseline, limit;  ///< value, baseline's value and bound as text, if known
  std::string message;                 ///< values that meet it, or why it is not met or unchecked

  /// "test/accuracy".
  std::string name() const { return results + "/" + metric; }
  /// The split of the data: "val" of "last/val".
  std::string split() const { return results.substr(results.rfind('/') + 1); }
  double bound_for(double baseline_value) const {
    return of_baseline ? factor * baseline_value + bound : bound;
  }
  /// Returns false for NaN, whatever the relation is.
  bool is_met(double value, double baseline_value = 0) const;
};

/// Throws ErrorKind::usage showing the form.
Condition parse_condition(const std::string& text);
/// Throws ErrorKind::usage naming what a run measures if a condition is on something else.
void check_metrics_of(const std::vector<Condition>& conditions, const MetricSet& metrics);
/// Throws ErrorKind::data if a condition needs the results of the best epoch, and they are unknown.
/// `owner`: "--baseline runs/a", "runs/a".
void check_best_is_known(const Condition& condition, const RunResults& results,
                         const std::string& owner);

/// Sets `value` to the number that the condition is on, of `results` (as RunResults::by_split).
/// Returns the reason if there is no finite one. `of`: the baseline that has the results, or null
/// for this run. Throws ErrorKind::data if the baseline has something else than a number there.
std::string find_value(const Condition& condition, const Json& results, const Baseline* of,
                       double& value);
/// Sets the outcomes. REQUIRES: the baseline has the values that bounds follow from.
void judge(std::vector<Condition>& conditions, const Json& results, const Baseline& baseline);

/// "--require test/loss<1: not met: the value is 2", a line for each that is not met.
std::string problems_of(const std::vector<Condition>& conditions);

}  // namespace dpt
