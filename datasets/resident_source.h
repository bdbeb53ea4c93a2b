// A data set held entirely in memory: IDX, CIFAR and synthetic data.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/source.h"

namespace dpt {

/// Allocates uninitialised memory for pixels. Throws ErrorKind::data, with `name`, if there is not
/// enough.
std::unique_ptr<std::byte[]> allocate_pixels(std::size_t bytes, const std::string& name);

/// Owns u8 samples and labels.
class ResidentSource final : public DataSource {
 public:
  struct Data {
    SampleShape shape;
    std::unique_ptr<std::byte[]> pixels;  ///< labels.size() samples of `shape`
    std::vector<std::int32_t> labels;
    std::vector<std::string> classes;
    /// Origin of the samples, in order: file name and number of samples.
    std::vector<std::pair<std::string, std::int64_t>> files;
  };
  explicit ResidentSource(Data data);

  std::int64_t size() const override { return static_cast<std::int64_t>(data_.labels.size()); }
  SampleShape shape() const override { return data_.shape; }
  DType type() const override { return DType::u8; }
  const std::vector<std::string>& classes() const override { return data_.classes; }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& label) const override;
  std::optional<ResidentSamples> resident() const override;
  std::string describe(std::int64_t index) const override;
  std::string fingerprint() const override { return fingerprint_; }

 private:
  std::size_t bytes() const { return data_.labels.size() * sample_bytes_; }

  Data data_;
  std::size_t sample_bytes_;
  std::string fingerprint_;
};

}  // namespace dpt
