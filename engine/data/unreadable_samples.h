// Unreadable samples of a prediction, which keep their places in the results.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace dpt {

/// Problems of samples, by sample index. Thread-safe.
class UnreadableSamples {
 public:
  /// Adds a problem of a sample. If the sample already has one, the first is kept.
  void add(std::int64_t index, const std::string& problem);
  /// Removes and returns the problems of the samples before `end`.
  std::map<std::int64_t, std::string> take_below(std::int64_t end);
  /// Adds a note about files that were left out because they cannot be samples.
  void add_note(const std::string& note);
  std::vector<std::string> notes() const;

 private:
  mutable std::mutex mutex_;
  std::map<std::int64_t, std::string> problems_;
  std::vector<std::string> notes_;
};

}  // namespace dpt
