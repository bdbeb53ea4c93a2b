// Every sample of some splits, read once: what is kept of each is a few numbers, so that a survey
// of millions of images fits into memory.
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
  std::uint64_t content = 0;     ///< XXH3 of its bytes, at the size that the model takes
  std::uint64_t target = 0;      ///< tells targets apart: the label, or a hash of the row
  std::uint64_t perceptual = 0;  ///< perceptual_hash.h; 0 if the image is too small for one
  std::int32_t label = 0;
  std::int32_t height = 0, width = 0;  ///< size of the image that is read from its file
  std::uint8_t orientation = 1;        ///< see FileFacts
  std::uint8_t used_bits = 0;          ///< see FileFacts
  bool is_turned = false;              ///< see FileFacts
  bool is_read = false;                ///< false: the rest is not known
  bool is_constant = false;            ///< all pixels are equal (in each channel)
  bool is_finite = true;
};

/// Mean and standard deviation (of the whole population: divided by n) of each channel: of bytes
/// divided by 255, of floats as they are. Bytes are summed in integers; floats in an order that
/// does not depend on the threads.
struct ChannelStatistics {
  std::vector<double> mean, stddev;
  std::int64_t samples = 0;  ///< that were read and are finite
};

struct SurveyedSplit {
  std::string name;  ///< "train", "val", "test"
  Split split;
  std::vector<SampleRecord> records;  ///< in the order of split.indices; empty without `records`
  ChannelStatistics statistics;
  /// Position in the split, and why it could not be read, in ascending order.
  std::vector<std::pair<std::int64_t, std::string>> unreadable;
};

struct SurveyOptions {
  int workers = 1;
  bool records = true;  ///< false: only statistics
  /// Both are called by the calling thread, ten times a second. `wants_stop` ends the survey.
  std::function<bool()> wants_stop;
  std::function<void(std::int64_t done, std::int64_t total)> on_progress;
};

/// Reads all samples of `splits`, each of which has a source, in `options.workers` threads. A
/// sample whose reading throws an ErrorKind::data is among the unreadable; other errors are thrown.
/// False if it was stopped: then the results are incomplete.
bool survey_samples(std::vector<SurveyedSplit>& splits, const SurveyOptions& options);

/// Sample `position` of a split as read: shape().elements() of type(), and its label. Where samples
/// are images of their own sizes, `height` and `width` are those of the file, else of shape().
void read_sample(const Split& split, std::int64_t position, std::vector<std::byte>& pixels,
                 SampleRecord& record);

}  // namespace dpt
