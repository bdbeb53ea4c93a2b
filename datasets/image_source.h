// A data set of image files, independent of their location. An image is decoded and resized when it
// is read, and kept in memory if the cache's budget covers the whole data set.
#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "engine/data/data_sets.h"
#include "engine/data/source.h"

namespace dpt {

/// Maximum size of a file. A larger one is not an image of an allowed size.
inline constexpr std::uint64_t kMaxImageFileBytes = std::uint64_t{256} << 20;

/// Throws unless `requirements` asks for 1 channel (grey) or 3 (RGB). Messages call the images
/// `name`.
void check_image_channels(const std::string& name, const DataRequirements& requirements);

/// Throws for more images than 32-bit integers can number.
void check_image_count(const std::string& name, std::size_t images);

/// Numbered images with their labels or targets. A derived class reads the image files.
class ImageSource : public DataSource {
 public:
  struct Samples {
    std::vector<std::int32_t> labels;  ///< label of each sample; 0 for targets without labels
    std::vector<float> rows = {};      ///< a row of targets.floats() values for each sample
    TargetShape targets = {};
    std::vector<std::string> classes;
    std::vector<std::int64_t> groups = {};  ///< DataSource::groups
  };

  std::int64_t size() const final { return static_cast<std::int64_t>(samples_.labels.size()); }
  SampleShape shape() const final { return shape_; }
  DType type() const final { return DType::u8; }
  const std::vector<std::string>& classes() const final { return samples_.classes; }
  TargetShape targets() const final { return samples_.targets; }
  void read_targets(std::int64_t index, std::span<float> row) const final;
  std::int32_t label(std::int64_t index) const final { return samples_.labels[index]; }
  std::span<const std::int64_t> groups() const final { return samples_.groups; }
  bool resizes() const final { return true; }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const final;
  Image read_part(std::int64_t index, const ChoosePart& choose, std::int32_t& label) const final;
  /// Returns a few samples of each class, including its first and last, or all of a small set.
  std::vector<std::int64_t> samples_to_try() const final;
  std::string fingerprint() const final { return fingerprint_; }
  FileFacts file_facts(std::int64_t index) const final;

 protected:
  /// `name` is used in messages.
  ImageSource(const std::string& name, Samples samples, const DataRequirements& requirements,
              std::int64_t cache_bytes, std::string fingerprint);
  /// Returns the bytes of an image's file. Const and thread-safe.
  virtual std::vector<std::byte> read_file(std::int64_t index) const = 0;

 private:
  enum class State : std::uint8_t { empty, being_written, kept };

  Samples samples_;
  SampleShape shape_;
  bool salvage_, applies_orientation_;
  std::size_t sample_bytes_;
  std::string fingerprint_;
  std::unique_ptr<std::byte[]> cache_;
  std::unique_ptr<std::atomic<State>[]> states_;
};

}  // namespace dpt
