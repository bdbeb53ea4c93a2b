// Groups of runs that are repetitions of each other, over which a spread is computed.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace dpt {

/// Values of a resolved config by dotted path.
using ConfigValues = std::map<std::string, std::string>;

/// Two or more runs that differ only in seed, fold and name.
struct RunGroup {
  std::vector<std::size_t> runs;  ///< indices; of runs with the same seed and fold, the first
  std::vector<std::string> over;  ///< the paths in which they differ: "seed", "data.val_split.fold"
};

/// Returns the groups. `ended`: true for each run that counts. A fold is any value whose path ends
/// in
/// ".fold": its number, or [number, count] with the same count.
std::vector<RunGroup> groups_of_runs(const std::vector<ConfigValues>& configs,
                                     const std::vector<bool>& ended);

}  // namespace dpt
