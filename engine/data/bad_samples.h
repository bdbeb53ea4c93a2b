// Unreadable samples in a run that continues without them (data.on_bad_sample: skip).
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "engine/data/source.h"

namespace dpt {

/// The bad samples that this process has found. Thread-safe.
class BadSamples {
 public:
  /// `most`: maximum number of bad samples.
  explicit BadSamples(std::int64_t most) : most_(most) {}
  /// `sample` is its name (DataSource::describe), `problem` describes the error. Throws
  /// ErrorKind::data if there are too many.
  void add(const std::string& sample, const std::string& problem);
  /// Returns a line for each bad sample added since the last call.
  std::vector<std::string> take_new();
  std::int64_t count() const;

 private:
  const std::int64_t most_;
  mutable std::mutex mutex_;
  std::set<std::string> met_;
  std::vector<std::string> new_;
};

/// Samples that one rank leaves out of one evaluation, by index. Thread-safe.
class LeftOutSamples {
 public:
  void add(std::int64_t index);
  bool contains(std::int64_t index) const;

 private:
  mutable std::mutex mutex_;
  std::set<std::int64_t> indices_;
};

/// Returns the element after `index` in `indices` (ascending), wrapping around from the last to the
/// first.
std::int64_t next_index(const std::vector<std::int64_t>& indices, std::int64_t index);

/// Returns a source that reads like `source`, but replaces an unreadable sample by the next
/// readable one of `indices`, wrapping around from the last to the first. The replacement depends
/// only on the files, the epoch and the sample, so it is the same on every rank and after a resume.
/// `indices` are in ascending order. Throws as BadSamples::add does, and ErrorKind::data if no
/// sample can be read. Adds replaced samples to `left_out`, if given: an evaluation ignores the
/// results of their substitutes. REQUIRES: the samples have only labels.
std::shared_ptr<const DataSource> with_substitutes(
    std::shared_ptr<const DataSource> source, std::vector<std::int64_t> indices,
    std::shared_ptr<BadSamples> bad, std::shared_ptr<LeftOutSamples> left_out = nullptr);

}  // namespace dpt
