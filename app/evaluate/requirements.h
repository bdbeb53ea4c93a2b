// Conditions on results: how `--require` is read, and what it is compared with.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/runs/run_results.h"
#include "engine/metrics/metric.h"
#include "engine/run/run_log.h"

namespace dpt {

/// `--require val/accuracy>=0.90`, or with a bound that follows from a baseline's value:
/// `>=baseline-0.005`, `<=baseline*1.02`.
struct Requirement {
  std::string text, metric, relation;
  std::string results;  ///< one of kResultSplits: "test", "last/val", ...
  bool of_baseline = false;
  double factor = 1;  ///< of the baseline's value
  double bound = 0;   ///< the bound itself, or what is added to factor * baseline

  /// "test/accuracy".
  std::string name() const { return results + "/" + metric; }
  /// The split of the data: "val" of "last/val".
  std::string split() const { return results.substr(results.rfind('/') + 1); }
  /// `baseline`: its value; not used by a bound that is a number.
  double bound_for(double baseline) const {
    return of_baseline ? factor * baseline + bound : bound;
  }
};
/// Throws ErrorKind::usage showing the form.
Requirement parse_requirement(const std::string& text);
/// Throws ErrorKind::usage naming what a run measures, if a requirement is of something else.
void check_metrics_of(const std::vector<Requirement>& requirements, const MetricSet& metrics);
/// False for NaN, whatever is required.
bool is_met(const Requirement& requirement, double value, double baseline = 0);

/// Results that requirements are compared with.
struct Baseline {
  std::string path;  ///< as it was given; empty = there is none
  RunResults results;
};
/// Reads a run folder, its summary.json or the output of `dpt eval --json`. Throws ErrorKind::data
/// for another file, and for a run that has not ended.
Baseline load_baseline(const std::string& path);

/// Throws ErrorKind::data if a requirement needs the results of the best epoch, and they are
/// unknown. `owner`: "--baseline runs/a", "runs/a".
void check_best_is_known(const Requirement& requirement, const RunResults& results,
                         const std::string& owner);

/// A requirement and what became of it.
struct Judgement {
  enum class Verdict : std::uint8_t { met, not_met, unchecked };
  Requirement requirement;
  Verdict verdict = Verdict::unchecked;
  std::string found, baseline, bound;  ///< as texts; empty = there is none
  std::string reason;                  ///< why it is not met, or was not checked
};

/// One for each requirement, in their order. `results`: as RunResults::by_split.
std::vector<Judgement> judge(const std::vector<Requirement>& requirements, const Json& results,
                             const Baseline& baseline);

/// "met: test/loss 0.25 < 1", with the baseline's value if the bound follows from it.
std::string text_of_met(const Judgement& judgement, const std::string& baseline_path);

/// "--require test/loss<1: not met: the value is 2", a line for each that is not met; empty if all
/// are.
std::string problems_of(const std::vector<Judgement>& judgements);

}  // namespace dpt
