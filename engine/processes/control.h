// The control channel: one TCP connection from every process to rank 0, in addition to those that
// carry gradients. It connects the processes, checks that they belong to one run, carries their
// heartbeats, and tells all of them within five seconds if one is lost, stalls or fails. None of
// this depends on collectives.
//
// Rank 0 listens on one interface: the loopback if all processes are on one machine, otherwise the
// one with the address World::coordinator. Both ends of a connection first prove that they know the
// token (control_handshake.h); a connection that fails this test is closed with a warning, and the
// world continues. In a world without a token and without a name, a process that shows another
// RunIdentity or another size is refused without failing the world.
//
// Time in which a process itself was suspended does not count when it judges the others, so a job
// that is suspended as a whole continues when it wakes.
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
  /// Connects all processes of the world and returns when all are connected. REQUIRES:
  /// !world.alone(). Throws ErrorKind::peer naming the ranks that did not connect within
  /// join_timeout, and ErrorKind::usage if two processes state the same rank, sizes differ, or the
  /// token is wrong. Throws JoinFailed if another process reports a failure, and StopRequested if a
  /// stop is requested.
  static std::unique_ptr<ControlChannel> join(const World& world, const ControlOptions& options);
  /// Ends the connection. The others consider this process lost unless it called leave().
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;

  const World& world() const;
  /// Returns the address of this process on the interface by which it reaches rank 0.
  std::string local_address() const;

  /// Exchanges small texts (up to 16 MiB in total) and returns them by rank. Collective. `what` is
  /// for messages and must be the same on all processes. Waits while the missing processes make
  /// progress; this process need not make progress meanwhile, as after begin_wait. One call at a
  /// time. Throws ErrorKind::peer with the failure's text.
  std::vector<std::string> all_gather(const std::string& what, const std::string& mine);

  /// Sets the threads whose beats are this process's progress, and whose texts describe its
  /// activity. Replaces earlier ones. (Until the first call, the thread that called join is
  /// watched.)
  void watch(std::vector<std::shared_ptr<Heartbeat>> heartbeats);
  void set_stall_timeout(std::chrono::milliseconds timeout);
  /// Mark the beginning and the end of a wait for other processes in `operation` (a text that
  /// outlives the wait). During the wait this process need not beat, and the channel beats for its
  /// watched threads, so that they are not considered stalled. If all processes wait for each other
  /// for a stall timeout, that is a failure too.
  void begin_wait(const char* operation);
  void end_wait();

  /// Sets the function to call once, on the channel's thread, when the world fails, or immediately
  /// if it has failed. The function must not wait for anything, nor call on_failure. It replaces an
  /// earlier function, which no longer runs when this call returns. Null only removes the earlier
  /// one.
  void on_failure(std::function<void(const WorldFailure&)> callback);
  /// Returns the failure, or nothing if there is none. Callable from any thread.
  std::optional<WorldFailure> failure() const;
  /// Waits up to `timeout` for a failure and returns it. A process that notices a broken link
  /// learns the cause this way: the report arrives after the link breaks.
  std::optional<WorldFailure> wait_for_failure(std::chrono::milliseconds timeout) const;

  /// Reports to all processes that this one failed, and why; the first cause wins. Callable from
  /// any thread, any number of times. `exit_code`: exit code of this process. Returns when the
  /// report was sent or cannot be sent.
  void fail(const std::string& text, int exit_code) noexcept;

  /// Leaves the world at the end of the run. Collective. From then on, a closed connection does not
  /// count as a lost process, and failure() no longer changes. Throws ErrorKind::peer with the
  /// failure's text.
  void leave();

 private:
  ControlChannel();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace dpt
