#include "engine/replica/repeated_calls.h"

#include <algorithm>

namespace dpt {

RepeatedCalls::Repeated& RepeatedCalls::turn_of(const Key& key, std::int64_t moves) {
  if (moves != moves_ && !repeated_.empty()) {
    backend_.synchronize();
    repeated_.clear();
  }
  moves_ = moves;
  return repeated_[key];
}

std::string RepeatedCalls::launches() const {
  const auto recorded = [&](Part part) {
    return std::any_of(repeated_.begin(), repeated_.end(), [&](const auto& each) {
      return each.first.part == part && each.second.graph;
    });
  };
  if (recorded(Part::whole)) return "graph";
  return recorded(Part::gradients) ? "graphs" : "calls";
}

}  // namespace dpt
