// Subsets of a data set: the samples for training, validation and testing.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "engine/data/source.h"

namespace dpt {

/// A subset of a source, by sample index.
struct Split {
  std::shared_ptr<const DataSource> source;
  std::vector<std::int64_t> indices;
  std::int64_t size() const { return static_cast<std::int64_t>(indices.size()); }
};

struct Splits {
  Split train, val, test;    ///< val and test may be empty
  bool has_own_val = false;  ///< true if val is a part of the data set, not held out of train
};

}  // namespace dpt
