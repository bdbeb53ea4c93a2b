// Groups of runs that repeat each other, from which the spread of a result is computed.
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
  std::vector<std::size_t> runs;  ///< indices; of runs with equal seed and fold, only the first
  std::vector<std::string> over;  ///< paths whose values differ: "seed", "data.val_split.fold"
};

/// Groups the runs for which `ended` is true. A fold is the value of a path that ends in ".fold": a
/// number, or [number, count]. All runs of a group have the same count.
std::vector<RunGroup> groups_of_runs(const std::vector<ConfigValues>& configs,
                                     const std::vector<bool>& ended);

}  // namespace dpt
