// Parts of a step that repeat the same sequence of calls. A part runs call by call the first time,
// is captured as a graph the second time, and is replayed after that.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "kernels/backend.h"

namespace dpt {

/// Used by the replica's thread only.
class RepeatedCalls {
 public:
  enum class Part : std::uint8_t { whole, gradients, update, evaluation };
  /// Key of a sequence of calls. Equal sequences have equal keys.
  struct Key {
    Part part;
    /// Size of the whole batch in training, or of the micro-batch in an evaluation.
    std::int64_t samples;
    std::uintptr_t pixels;  ///< address of the samples: a data set, or one of two buffers
    bool norm, measured, timed;
    auto operator<=>(const Key&) const = default;
  };

  explicit RepeatedCalls(Backend& backend) : backend_(backend) {}

  /// Runs `work` as calls, as a graph that it captures, or as a replay, depending on how often it
  /// has run. Returns true if it ran as one launch. `moves` is the number of times memory was
  /// moved. Captured graphs hold addresses, so all of them are discarded if `moves` has changed
  /// since the last call.
  template <class Work>
  bool run(const Key& key, std::int64_t moves, const Work& work) {
    Repeated& repeated = turn_of(key, moves);
    using State = Repeated::State;
    if (repeated.state == State::seen) {
      repeated.graph = backend_.capture(std::cref(work));
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

  /// Returns "graph" if one launch runs a whole step, "graphs" if the sum over ranks comes between
  /// two graphs, "calls" if nothing is captured.
  std::string launches() const;

 private:
  struct Repeated {
    enum class State : std::uint8_t { fresh, seen, recorded, calls } state = State::fresh;
    std::unique_ptr<CapturedGraph> graph;
  };
  Repeated& turn_of(const Key& key, std::int64_t moves);

  Backend& backend_;
  std::int64_t moves_ = 0;
  std::map<Key, Repeated> repeated_;
};

}  // namespace dpt
