// Moves bytes between the processes of a world. What is added, and in which order, is the
// communicator's business (world_group.h); an implementation only moves.
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace dpt {

/// Used by one thread at a time, but for abort.
class ProcessLinks {
 public:
  virtual ~ProcessLinks() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  /// Collective: sends send[p] to process p, and fills receive[p] with what p sends to this one.
  /// Both have size() entries; sizes agree between the two ends; those of this process itself are
  /// ignored, empty ones cost nothing. Returns when all has been sent and received. `operation` is
  /// for messages. Throws ErrorKind::peer when a link is broken or aborted.
  virtual void exchange(std::span<const std::span<const std::byte>> send,
                        std::span<const std::span<std::byte>> receive, const char* operation) = 0;

  /// Makes a present exchange and all later ones throw, with this cause. Any thread, any number of
  /// times; the first cause is kept. Never throws.
  virtual void abort(const std::string& cause) noexcept = 0;
};

}  // namespace dpt
