// The contract of a data set: numbered samples of one shape, read by index.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/config/train_spec.h"
#include "kernels/base/error.h"
#include "kernels/base/types.h"
#include "kernels/image/image.h"

namespace dpt {

/// All samples in memory, one after another, so that a device can hold the data set itself.
struct ResidentSamples {
  std::span<const std::byte> pixels;     ///< size() samples of shape().elements() of type()
  std::span<const std::int32_t> labels;  ///< size() labels
  std::span<const float> targets{};      ///< size() rows of targets().floats()
};

/// A sample as it occurs in an epoch.
struct Occurrence {
  std::int64_t epoch = 0;
  std::int64_t index = 0;
  /// Key of the sample's random draws: its index, or a fresh key for each repetition in an epoch.
  std::int64_t key = 0;
};

/// Samples numbered 0 .. size()-1. Const and thread-safe. For anything wrong with the data, throws
/// ErrorKind::data with the file and the offset or index.
class DataSource {
 public:
  virtual ~DataSource() = default;
  virtual std::int64_t size() const = 0;
  virtual SampleShape shape() const = 0;  ///< shape of every raw sample, (H,W,C)
  virtual DType type() const = 0;         ///< u8 (0..255) or f32
  /// Returns the names of the classes, or of the outputs if there are no classes.
  virtual const std::vector<std::string>& classes() const = 0;
  /// Returns the shape of the samples' targets besides the label. Soft labels are at least 0 and
  /// add up to 1; the label is the index of the first maximum. Multi-hot targets are from 0 to 1.
  /// If the data has no labels, the label is 0. Weights are finite, and at least 0.
  virtual TargetShape targets() const { return {}; }
  /// Returns the names of a sample's values if they are columns of a table; otherwise empty.
  virtual const std::vector<std::string>& features() const;
  /// Writes the sample's row of targets().floats() floats. Called only if that number is above 0.
  virtual void read_targets(std::int64_t index, std::span<float> row) const;
  /// Writes one raw sample, shape().elements() values of type(), and its label.
  virtual void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const = 0;
  /// Writes the sample as it occurs in an epoch: after the host's transforms, if there are any.
  virtual void read_in_epoch(const Occurrence& sample, std::span<std::byte> pixels,
                             std::int32_t& label) const;
  /// Returns true if samples are images of various sizes, which read() resizes to shape().
  virtual bool resizes() const { return false; }
  /// Returns the part of a sample that `choose` requests, and its label. The part is taken from the
  /// image as stored in its file or, if samples are not image files, from the result of `read`.
  /// REQUIRES: type() is u8.
  virtual Image read_part(std::int64_t index, const ChoosePart& choose, std::int32_t& label) const;
  /// Returns the label alone.
  virtual std::int32_t label(std::int64_t index) const;
  /// Returns each sample's group number (DataRequirements::group); empty if there are no groups.
  virtual std::span<const std::int64_t> groups() const { return {}; }
  /// Returns the samples if everything is in memory. The result is valid as long as the source.
  virtual std::optional<ResidentSamples> resident() const { return std::nullopt; }
  /// Returns the sample's name in messages: "train-images.gz, sample 17" or a file path.
  virtual std::string describe(std::int64_t index) const = 0;
  /// Examines the file of a sample again, for a check of the data.
  virtual FileFacts file_facts(std::int64_t /*index*/) const { return {}; }
  /// Returns the indices of some samples of every class, for a check that reads them; empty if
  /// opening the data has already read everything.
  virtual std::vector<std::int64_t> samples_to_try() const { return {}; }
  /// Returns a text that changes when the data does (XXH3 of the bytes, or of the sorted file list
  /// with sizes).
  virtual std::string fingerprint() const = 0;
};

/// Error thrown if a cache of samples is damaged, as opposed to a sample itself.
class DamagedCache : public Error {
 public:
  explicit DamagedCache(const std::string& text) : Error(ErrorKind::data, text) {}
};

}  // namespace dpt
