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

/// A collective over the control channel: what each process says (any bytes), by rank.
using GatherTexts = std::function<std::vector<std::string>(const std::string& mine)>;

struct LinkOptions {
  int rank = 0, size = 1;
  std::string address;  ///< address of this process, to which the others connect
  /// Shared secret of all processes. A connection counts once both ends have proven that they know
  /// it.
  std::string secret;
  /// Time after which the processes give up if no further one has connected.
  std::chrono::milliseconds patience = std::chrono::seconds(20);
};

/// Makes links over TCP: one connection for each pair of processes. Anything else that connects
/// meanwhile to the port on which this process listens is closed, and does no harm. Collective.
/// Throws ErrorKind::peer if the links cannot be made, naming the pair.
std::unique_ptr<ProcessLinks> make_tcp_links(const LinkOptions& options, const GatherTexts& gather);

}  // namespace dpt
