// One meaning of a run's results, for gates and lists of runs: those of the weights that ship.
// If a best checkpoint is kept, "val" is of the best epoch; "last/val" is of the last one.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/run/run_log.h"

namespace dpt {

/// Names of RunResults::by_split, in the order in which they are listed.
inline constexpr const char* kResultSplits[] = {"train", "val", "last/val", "test"};

struct RunResults {
  Json by_split = Json::object();  ///< for each split, an object of values
  std::string why_no_val;          ///< reason if the best epoch's are unknown; else empty
};

/// Returns the results in a summary.json. `log` is the metrics.jsonl of its run: if the summary has
/// a best but no `best_val` (an earlier release wrote it), the values are those of the line `eval`
/// of the best step.
RunResults results_of_summary(const Json& summary, const std::string& log);

}  // namespace dpt
