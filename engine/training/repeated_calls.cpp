#include "engine/training/repeated_calls.h"

#include <algorithm>

namespace dpt {

bool RepeatedCalls::run_function(const Key& key, std::int64_t moves,
                                 const std::function<void()>& work) {
  if (moves != moves_) forget();
  moves_ = moves;
  Repeated& repeated = repeated_[key];
  using State = Repeated::State;
  if (repeated.state == State::seen) {
    repeated.graph = backend_.capture(work);
    repeated.state = repeated.graph ? State::recorded : State::calls;
  }
  if (repeated.state == State::recorded) {
    backend_.replay(*repeated.graph);
    return true;
  }
  work();
  if (repeated.state == State::fresh) repeated.state = State::seen;
  return false;
}

void RepeatedCalls::forget() {
  if (repeated_.empty()) return;
  backend_.synchronize();
  repeated_.clear();
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
