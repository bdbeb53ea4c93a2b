// Check for wrong or suspicious samples of a data set (docs/guide/data-check.md).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/data/data_report.h"
#include "engine/data/loader.h"
#include "engine/data/sample_survey.h"
#include "engine/data/split.h"

namespace dpt {

/// Limits for near duplicates: their perceptual hashes differ in at most this many of 63 bits, and
/// their pixels have at least this correlation.
inline constexpr int kNearDistance = 5;
inline constexpr double kNearCorrelation = 0.98;
/// Maximum number of pairs of near duplicates that become findings.
inline constexpr std::size_t kMaxNearFindings = 10'000;

struct DataCheckOptions {
  int workers = 1;
  bool near_duplicates = true;
  std::function<bool()> wants_stop;  ///< see SurveyOptions
  /// `phase`: "read" or "compared".
  std::function<void(const char* phase, std::int64_t done, std::int64_t total)> on_progress;
};

/// Reads every sample once, and similar ones again. Throws as survey_samples does.
DataReport check_data(const Splits& splits, const DataCheckOptions& options);

/// Smallest, largest (by number of pixels) and most common size of a split's readable images, and
/// the number of different sizes.
struct ImageSizes {
  Size2 smallest{0, 0}, largest{0, 0}, commonest{0, 0};
  std::int64_t of_commonest = 0, distinct = 0;
};
ImageSizes image_sizes(const SurveyedSplit& split);

}  // namespace dpt
