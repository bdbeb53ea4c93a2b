// Findings of a data check about image files: their storage, not their content.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "engine/data/data_report.h"

namespace dpt {

/// Counts of images that are stored rotated or mirrored.
struct StoredOrientations {
  std::map<int, std::int64_t> counts;  ///< images of each orientation except 1
  std::map<int, std::int64_t> turned;  ///< images of each orientation that reading turns upright
};
StoredOrientations stored_orientations(const SurveyedSplit& split);

/// Adds findings about the files (few_bits, exif_orientation) to a report whose samples were read.
void find_file_problems(DataReport& report);

}  // namespace dpt
