// Findings of a data check about the files of pictures: how they are stored, not what they show.
#pragma once

#include <cstdint>
#include <map>

#include "engine/data/data_check.h"

namespace dpt {

/// Pictures whose files store them turned or mirrored.
struct StoredOrientations {
  std::map<int, std::int64_t> counts;  ///< of each orientation but 1
  std::map<int, std::int64_t> turned;  ///< those of them that reading turns upright
};
StoredOrientations stored_orientations(const SurveyedSplit& split);

/// Adds what is suspicious about the files of a surveyed report.
void find_file_problems(DataReport& report);

}  // namespace dpt
