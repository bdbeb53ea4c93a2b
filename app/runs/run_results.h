// The results of a run, for gates and lists of runs: those of the weights that users get. If a best
// checkpoint is kept, "val" is from the best epoch, and "last/val" from the last one.
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
  std::string why_no_val;          ///< reason if the results of the best epoch are unknown
};

/// Returns the results in a summary.json. `log` is the metrics.jsonl of its run: if the summary has
/// a best but no `best_val` (an earlier release wrote it), the values are those of the line `eval`
/// of the best step.
RunResults results_of_summary(const Json& summary, const std::string& log);

}  // namespace dpt
