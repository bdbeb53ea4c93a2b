#include "engine/data/unreadable_samples.h"

namespace dpt {

void UnreadableSamples::add(std::int64_t index, const std::string& problem) {
  const std::lock_guard lock(mutex_);
  problems_.emplace(index, problem);
}

std::map<std::int64_t, std::string> UnreadableSamples::take_below(std::int64_t end) {
  const std::lock_guard lock(mutex_);
  std::map<std::int64_t, std::string> taken;
  while (!problems_.empty() && problems_.begin()->first < end) {
    taken.insert(problems_.extract(problems_.begin()));
  }
  return taken;
}

void UnreadableSamples::add_note(const std::string& note) {
  const std::lock_guard lock(mutex_);
  notes_.push_back(note);
}

std::vector<std::string> UnreadableSamples::notes() const {
  const std::lock_guard lock(mutex_);
  return notes_;
}

}  // namespace dpt
