// Reads every sample of some splits once. Keeps only a few numbers for each sample, so that a
// survey of millions of images fits into memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/loader.h"
#include "engine/data/split.h"

namespace dpt {

/// Properties of a sample that was read.
struct SampleRecord {
  std::uint64_t content = 0;     ///< XXH3 of its bytes, at the model's input size
  std::uint64_t target = 0;      ///< distinguishes targets: the label, or a hash of the row
  std::uint64_t perceptual = 0;  ///< see perceptual_hash.h; 0 if the image is too small
  std::int32_t label = 0;
  std::int32_t height = 0, width = 0;  ///< size of the image in its file (see read_sample)
  std::uint8_t orientation = 1;        ///< see FileFacts
  std::uint8_t used_bits = 0;          ///< see FileFacts
  bool is_turned = false;              ///< see FileFacts
  bool is_read = false;                ///< false: the other values are unknown
  bool is_constant = false;            ///< all pixels are equal (in each channel)
  bool is_finite = true;
};

/// Mean and population standard deviation (divided by n, not n - 1) of each channel. Bytes are
/// scaled to 0..1, floats are used as they are. The results do not depend on the number of threads:
/// bytes are summed in integers, floats in a fixed order.
struct ChannelStatistics {
  std::vector<double> mean, stddev;
  std::int64_t samples = 0;  ///< number of samples that were read and are finite
};

struct SurveyedSplit {
  std::string name;  ///< "train", "val", "test"
  Split split;
  std::vector<SampleRecord> records;  ///< in the order of split.indices; see SurveyOptions
  ChannelStatistics statistics;
  /// Positions of unreadable samples in the split, in ascending order, each with the error.
  std::vector<std::pair<std::int64_t, std::string>> unreadable;
};

struct SurveyOptions {
  int workers = 1;
  bool records = true;  ///< false: compute statistics only, and leave SurveyedSplit::records empty
  /// The two functions are called in the thread that called survey_samples, ten times a second.
  /// `wants_stop` returns true to end the survey.
  std::function<bool()> wants_stop;
  std::function<void(std::int64_t done, std::int64_t total)> on_progress;
};

/// Reads all samples of `splits` in `options.workers` threads. Each split must have a source. A
/// sample that fails with ErrorKind::data is added to `unreadable`; other errors are rethrown.
/// Returns false if the survey was stopped, which leaves the results incomplete.
bool survey_samples(std::vector<SurveyedSplit>& splits, const SurveyOptions& options);

/// Reads sample `position` of a split: shape().elements() values of type(), and its label. If
/// samples are images of different sizes, `height` and `width` are those of the file, otherwise
/// those of shape().
void read_sample(const Split& split, std::int64_t position, std::vector<std::byte>& pixels,
                 SampleRecord& record);

}  // namespace dpt
