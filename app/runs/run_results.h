// The results of a run, for gates and lists of runs. They belong to the weights that users get. If
// a best checkpoint is kept, "val" is from the best epoch, and "last/val" from the last one.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/run/run_log.h"

namespace dpt {

/// Keys of RunResults::by_split, in the order in which they are listed.
inline constexpr const char* kResultSplits[] = {"train", "val", "last/val", "test"};

struct RunResults {
  Json by_split = Json::object();  ///< for each split, an object of values
  std::string why_no_val;          ///< reason if the results of the best epoch are unknown
};

/// Returns the results in a summary.json. `log` is the path of the run's metrics.jsonl: if the
/// summary has a best but no `best_val`, as in earlier releases, "val" is read from the `eval` line
/// of the best step.
RunResults results_of_summary(const Json& summary, const std::string& log);

}  // namespace dpt
