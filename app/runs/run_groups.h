// Runs that are repetitions of each other: what their spread is taken over.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace dpt {

/// A resolved config: its values by their dotted paths.
using ConfigValues = std::map<std::string, std::string>;

/// Two runs or more that differ in their seed or fold only (and in their names).
struct RunGroup {
  std::vector<std::size_t> runs;  ///< indices; of runs with the same seed and fold, the first
  std::vector<std::string> over;  ///< the paths in which they differ: "seed", "data.val_split.fold"
};

/// `ended`: which runs count, by index. A fold is any value whose path ends in ".fold": its number,
/// or [number, count], where the count must be the same.
std::vector<RunGroup> groups_of_runs(const std::vector<ConfigValues>& configs,
                                     const std::vector<bool>& ended);

}  // namespace dpt
