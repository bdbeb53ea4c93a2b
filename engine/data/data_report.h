// Findings of a data check (data_check.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "engine/data/sample_survey.h"
#include "engine/data/source.h"
#include "engine/data/splits.h"

namespace dpt {

/// Kinds of findings, errors first.
enum class FindingKind : std::uint8_t {
  not_opened,               ///< opening the data set failed
  unreadable,               ///< a sample cannot be read
  not_finite,               ///< a sample has NaN or infinite values
  label_conflict,           ///< equal samples have different targets
  duplicate_across_splits,  ///< equal samples in several splits
  class_not_trained,        ///< val or test has samples of a class that train does not have
  // The following are warnings.
  few_bits,                      ///< 16-bit images whose values need fewer bits
  exif_orientation,              ///< images stored rotated or mirrored, but read as stored
  duplicate,                     ///< equal samples in one split
  equal_rows,                    ///< table rows with equal features, in one split or several
  near_duplicate_across_splits,  ///< similar images in several splits
  near_duplicate,                ///< similar images in one split
  constant,                      ///< an image all of whose pixels are equal
  constant_channel,              ///< a channel that has one value in all training samples
  class_missing,                 ///< no split has samples of a class
  class_not_measured,            ///< val or test has no samples of a class that train has
  few_samples                    ///< a class with few training samples
};
inline constexpr int kFindingKinds = static_cast<int>(FindingKind::few_samples) + 1;
/// Returns the kind's name in reports: "label_conflict".
const char* name_of(FindingKind kind);
/// Returns true for a kind that is an error unless the user allows it.
bool is_error(FindingKind kind);

/// A sample of a finding.
struct SampleRef {
  std::size_t split = 0;      ///< index in DataReport::splits
  std::int64_t position = 0;  ///< index in SurveyedSplit::records
};

struct Finding {
  FindingKind kind;
  std::string message;
  std::vector<SampleRef> samples;  ///< samples to which the finding applies
  double correlation = 0;          ///< correlation of near duplicates
};

/// Number of samples in split `of` that are equal to a sample in split `in`.
struct CopyCount {
  std::size_t in = 0, of = 0;
  std::int64_t samples = 0;
};

struct DataReport {
  std::vector<SurveyedSplit> splits;  ///< those that have samples: train, val, test
  std::vector<std::vector<std::int64_t>>
      class_counts;               ///< one list per split; empty without labels
  std::vector<CopyCount> copies;  ///< one entry per pair of splits
  std::vector<Finding> findings;  ///< ordered by kind, the most important first
  bool looks_for_near = false;    ///< true if requested and images are large enough
  bool near_is_complete = true;   ///< false: there may be more near duplicates
  std::int64_t near_pairs = 0;    ///< pairs found, of which only the most similar become findings
  bool interrupted = false;       ///< true: the report is incomplete
};

/// Returns the record, or the data set, of a sample.
const SampleRecord& record_of(const DataReport& report, const SampleRef& sample);
const DataSource& source_of(const DataReport& report, const SampleRef& sample);

/// Returns the sample's name, such as that of its file: "data/train/cat/7.jpg".
std::string name_of_sample(const DataReport& report, const SampleRef& sample);
/// Lists the first few samples, with split and class, and the number of others.
std::string some_named(const DataReport& report, const std::vector<SampleRef>& samples);
/// Returns a sample with its split and class: "train: data/train/cat/1.png (cat)".
std::string named(const DataReport& report, const SampleRef& sample);

/// Returns the readable samples of all splits for which `holds` returns true.
std::vector<SampleRef> samples_where(const DataReport& report,
                                     const std::function<bool(const SampleRecord&)>& holds);

}  // namespace dpt
