// The rows of targets of a split (DataSource::targets), read one at a time.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "engine/data/loader.h"
#include "engine/data/split.h"

namespace dpt {

/// Targets of the samples of a split, by position in it. `split` must outlive the object.
class TargetRows {
 public:
  explicit TargetRows(const Split& split)
      : split_(split),
        shape_(split.source->targets()),
        row_(static_cast<std::size_t>(shape_.floats())) {}

  bool weighted() const { return shape_.weighted; }
  /// Returns the targets of a sample without its weight; valid until the next call.
  std::span<const float> values(std::size_t position) {
    if (!row_.empty()) split_.source->read_targets(split_.indices[position], row_);
    return std::span(row_).first(static_cast<std::size_t>(shape_.values));
  }
  /// Returns the sample's own weight; 1 if samples have none.
  double weight(std::size_t position) {
    if (!shape_.weighted) return 1;
    values(position);
    return static_cast<double>(row_.back());
  }

 private:
  const Split& split_;
  const TargetShape shape_;
  std::vector<float> row_;
};

}  // namespace dpt
