// Training samples that cannot be read, where the config says to go on without them.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/data/source.h"

namespace dpt {

/// Those that this process has met. Thread-safe.
class BadSamples {
 public:
  /// `most`: how many may be met.
  explicit BadSamples(std::int64_t most) : most_(most) {}
  /// `problem` names the file. Throws ErrorKind::data when they are too many.
  void add(std::int64_t index, const std::string& problem);
  /// A line for each one met since the last call.
  std::vector<std::string> take_new();
  std::int64_t count() const;

 private:
  const std::int64_t most_;
  mutable std::mutex mutex_;
  std::set<std::int64_t> met_;
  std::vector<std::string> new_;
};

/// `source`, in which the place of a sample that cannot be read is taken by the next of `indices`
/// that can be read (after the last comes the first). Which one that is follows from the files, the
/// epoch and the sample alone: it is the same on every rank, and after a resume. `indices` are in
/// ascending order. Throws as BadSamples::add, and ErrorKind::data when no sample can be read.
/// REQUIRES: the samples have labels only.
std::shared_ptr<const DataSource> with_substitutes(std::shared_ptr<const DataSource> source,
                                                   std::vector<std::int64_t> indices,
                                                   std::shared_ptr<BadSamples> bad);

/// `source` for evaluations, whose errors say that these need every sample; resident data, and such
/// with other targets than labels, as they are.
std::shared_ptr<const DataSource> needed_samples(std::shared_ptr<const DataSource> source);

}  // namespace dpt
