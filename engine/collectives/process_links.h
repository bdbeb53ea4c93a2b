// Moves bytes between the processes of a world. The communicator (world_group.h) decides what is
// added and in which order; an implementation only moves bytes.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dpt {

/// Used by one thread at a time, except for abort.
class ProcessLinks {
 public:
  virtual ~ProcessLinks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Sends send[p] to process p, and fills receive[p] with the bytes that p sends to this one.
  /// Collective. Both have size() entries. Sizes agree between the two ends; entries of this
  /// process itself are ignored, empty ones cost nothing. Returns when everything has been sent and
  /// received. `operation` names the call in error messages. Throws ErrorKind::peer if a link is
  /// broken or aborted.
  virtual void exchange(std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> receive, const char* operation) = 0;

  /// Makes the current exchange and all later ones throw, with this cause. Callable from any
  /// thread, any number of times; the first cause is kept. Never throws.
  virtual void abort(const std::string& cause) noexcept = 0;
};

}  // namespace dpt
