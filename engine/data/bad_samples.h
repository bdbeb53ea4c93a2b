// Handling of unreadable samples if the config continues without them.
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
  /// `most`: the maximum number of bad samples.
  explicit BadSamples(std::int64_t most) : most_(most) {}
  /// `sample` is its name (DataSource::describe), `problem` describes the error. Throws
  /// ErrorKind::data if there are too many.
  void add(const std::string& sample, const std::string& problem);
  /// A line for each one met since the last call.
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

/// `source`, in which the place of a sample that cannot be read is taken by the next of `indices`
/// that can be read (after the last comes the first). Which one that is follows from the files, the
/// epoch and the sample alone: it is the same on every rank, and after a resume. `indices` are in
/// ascending order. Throws as BadSamples::add, and ErrorKind::data when no sample can be read. Adds
/// replaced samples to `left_out`, if given: an evaluation ignores the results of their
/// substitutes. REQUIRES: the samples have only labels.
std::shared_ptr<const DataSource> with_substitutes(
    std::shared_ptr<const DataSource> source, std::vector<std::int64_t> indices,
    std::shared_ptr<BadSamples> bad, std::shared_ptr<LeftOutSamples> left_out = nullptr);

}  // namespace dpt
