// Differences between the configs and results of runs, for dpt compare and dpt report.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "app/runs/run_facts.h"
#include "engine/config/flat_values.h"
#include "engine/run/run_log.h"

namespace dpt {

/// Config of a run in the form in which configs are compared (show_to_compare).
struct RunConfig {
  FlatConfig flat;
  /// Values by path; the path of a list with named items maps to their names, in order.
  std::map<std::string, std::string> by_path;
};

/// Path at which configs differ.
struct ConfigDifference {
  std::string path;
  std::vector<std::optional<std::string>> values;  ///< value in each config; unset if absent
};

/// Returns `folder` without trailing slashes. Throws ErrorKind::data if it is not the folder of a
/// run: it has no config.yaml.
std::string checked_run_folder(std::string folder);

/// Returns the config as this release writes it: fields that an older release did not know have
/// their defaults. Throws what reading a config throws.
RunConfig config_of_run(const std::string& folder);

/// Finds where configs have different values, or the same items of a list in different orders.
std::vector<ConfigDifference> differences_of(const std::vector<RunConfig>& configs);

/// Formats a value of a ConfigDifference for tables.
inline std::string text_of(const std::optional<std::string>& value) {
  return value.value_or("-");
}

/// Returns the fields of a run in the output of `--json`.
Json json_of(const RunFacts& facts);

/// Returns the numbers by which runs are compared: results, the best value, steps and seconds.
std::vector<std::pair<std::string, double>> numbers_of(const RunFacts& facts);

/// Results of numbers_of, one for each run.
using RunNumbers = std::vector<std::vector<std::pair<std::string, double>>>;

std::optional<double> number_at(const RunNumbers& numbers, std::size_t run,
                                const std::string& name);

/// Returns the distinct keys of all lists, in the order of their first occurrence.
template <class Lists>
std::vector<std::string> names_in(const Lists& lists) {
  std::vector<std::string> names;
  std::set<std::string> known;
  for (const auto& list : lists) {
    for (const auto& [name, value] : list) {
      if (known.insert(name).second) names.push_back(name);
    }
  }
  return names;
}

/// Returns the names of all numbers: the best, then those of the splits in order, then the others.
std::vector<std::string> measures_in(const RunNumbers& numbers);

}  // namespace dpt
