// The control channel: one TCP connection from every process to rank 0, in addition to those that
// carry gradients. It connects the processes, compares their introductions, carries their
// heartbeats, and tells all of them within five seconds when one is lost, stalls or fails.
// Collectives are not relied on for this.
//
// Rank 0 listens on one interface: the loopback where all processes are on one machine, else that
// of its address as the coordinator. Both ends of a connection first prove that they know the token
// (control_handshake.h); one that does not is closed, with a warning, and harms nothing. In a world
// without a token and without a name, a process that shows another RunIdentity or another size is
// refused alone.
//
// Time in which a process was suspended itself does not count for what it thinks of the others: a
// whole job that is suspended goes on when it wakes.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/processes/control_types.h"
#include "engine/processes/world.h"
#include "kernels/base/error.h"
#include "kernels/base/heartbeat.h"

namespace dpt {

class ControlChannel {
 public:
  /// Connects all processes of the world; returns when all are there. REQUIRES: !world.alone().
  /// Throws ErrorKind::peer naming the ranks that did not come within join_timeout, and
  /// ErrorKind::usage where two say the same rank, or another size, or the token is wrong. Throws
  /// JoinFailed with what another process said of a failure, and StopRequested.
  static std::unique_ptr<ControlChannel> join(const World& world, const ControlOptions& options);
  /// The others take this process for lost unless it called leave().
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;

  const World& world() const;
  /// The address of this process on the interface by which it reaches rank 0.
  std::string local_address() const;

  /// Collective, for small things (16 MiB in all): what each process says, by rank. `what` is for
  /// messages and must be the same on all. Waits as long as the processes that are missing make
  /// progress; itself it is not expected to make any (begin_wait). One call at a time. Throws
  /// ErrorKind::peer with the failure's text.
  std::vector<std::string> all_gather(const std::string& what, const std::string& mine);

  /// The beats of these threads are this process' progress, and their texts what it does. Replaces
  /// those of before. (Until the first call: those of the thread that called join.)
  void watch(std::vector<std::shared_ptr<Heartbeat>> heartbeats);
  void set_stall_timeout(std::chrono::milliseconds timeout);
  /// Between the two, this process waits for others in `operation` (a text that outlives the wait):
  /// it is not expected to beat, but its watched threads are kept from being taken for stalled (the
  /// channel beats for them). Where all wait, for a stall timeout, they wait for each other, and
  /// that is a failure too.
  void begin_wait(const char* operation);
  void end_wait();

  /// Called once, on the channel's thread, when the world fails; at once if it has. It must not
  /// wait for anything, nor call on_failure. It replaces the one of before, which does not run any
  /// more when this returns; null takes it away.
  void on_failure(std::function<void(const WorldFailure&)> callback);
  /// Returns the failure, or nothing while all is well. Any thread.
  std::optional<WorldFailure> failure() const;
  /// Waits up to `timeout` for it: a broken link is noticed before its cause arrives.
  std::optional<WorldFailure> wait_for_failure(std::chrono::milliseconds timeout) const;

  /// Tells all processes that this one failed, and why; the first cause wins. Any thread, any
  /// number of times. `exit_code`: the one it ends with. Returns when it is sent, or cannot be.
  void fail(const std::string& text, int exit_code) noexcept;

  /// Collective, at the end: from then on a connection that ends is no loss, and failure() stays
  /// what it is. Throws ErrorKind::peer with the failure's text.
  void leave();

 private:
  ControlChannel();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dpt
