// A data set of labels and groups, for tests that ignore the samples' content.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "engine/data/source.h"

namespace dpt::data_test {

class Labelled final : public DataSource {
 public:
  explicit Labelled(std::vector<std::int32_t> labels, std::vector<std::int64_t> groups = {},
                    TargetKind kind = TargetKind::class_index)
      : labels_(std::move(labels)), groups_(std::move(groups)) {
    targets_.kind = kind;
    classes_.resize(
        static_cast<std::size_t>(*std::max_element(labels_.begin(), labels_.end()) + 1));
  }
  std::int64_t size() const override { return static_cast<std::int64_t>(labels_.size()); }
  SampleShape shape() const override { return {1, 1, 1}; }
  DType type() const override { return DType::u8; }
  const std::vector<std::string>& classes() const override { return classes_; }
  TargetShape targets() const override { return targets_; }
  std::span<const std::int64_t> groups() const override { return groups_; }
  std::int32_t label(std::int64_t index) const override { return labels_[index]; }
  void read(std::int64_t index, std::span<std::byte> pixels, std::int32_t& to) const override {
    pixels[0] = static_cast<std::byte>(index);
    to = label(index);
  }
  std::string describe(std::int64_t index) const override { return std::to_string(index); }
  std::string fingerprint() const override { return "labelled"; }

 private:
  std::vector<std::int32_t> labels_;
  std::vector<std::int64_t> groups_;
  TargetShape targets_;
  std::vector<std::string> classes_;
};

}  // namespace dpt::data_test
