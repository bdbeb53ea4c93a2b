// Types that the parts of the control channel (control.h) share.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "kernels/base/error.h"

namespace dpt {

/// Cause of the early end of a world; the same on every process.
struct WorldFailure {
  int rank = -1;     ///< process that was lost, stalled or failed; -1 = no single process
  std::string text;  ///< names the rank, host, step, operation and cause
  /// True if the process is gone or does not answer, so that others have to report it.
  bool is_lost = false;
  /// Exit code that the process announced (an ErrorKind), or 0.
  int exit_code = 0;

  /// Returns the kind of error that the other processes end with: that of the cause, or
  /// ErrorKind::peer if a process was lost or stalled.
  ErrorKind kind() const;
};

/// Identity of a run without a name (World::job) and without a token. A process shows it before it
/// joins, because nothing else distinguishes two runs on the same port. An empty text means
/// unknown.
struct RunIdentity {
  std::string title;    ///< command and config, for messages
  std::string options;  ///< digest of the command and its overrides
  std::string config;   ///< digest of the config's path
  std::string content;  ///< digest of the config file

  /// Returns true if the two may be of one run: they have the same options and the same config.
  /// Configs are the same if their paths are (one copy may be out of date, which the run must
  /// report) or if their contents are (paths may differ between machines).
  bool may_be_same(const RunIdentity& other) const {
    return options == other.options &&
           (config == other.config || (!content.empty() && content == other.content));
  }
};

/// Options of ControlChannel::join.
struct ControlOptions {
  RunIdentity run;
  /// Returns the exit code of a stop that was requested of this process, or 0. A stop ends join
  /// with StopRequested. The other processes are told first if rank 0 can be reached within half a
  /// second.
  std::function<int()> requested_stop;
  std::chrono::milliseconds join_timeout = std::chrono::minutes(5);
  /// Time without progress after which a process has stalled (train.stall_timeout). This default
  /// applies until set_stall_timeout. Until then, a process also counts as lost after a silence of
  /// join_timeout, if that is shorter.
  std::chrono::milliseconds stall_timeout = std::chrono::minutes(10);
  /// Time between two heartbeats. Tests shorten it.
  std::chrono::milliseconds beat_every = std::chrono::milliseconds(250);
  /// Time without an answer after which a machine counts as gone (TCP_USER_TIMEOUT). The machine of
  /// a stopped process still answers.
  std::chrono::milliseconds network_timeout = std::chrono::seconds(4);
  /// Receives warnings about refused connections for the user. Called on rank 0, by the channel's
  /// thread.
  std::function<void(const std::string&)> warn;
};

/// Thrown by ControlChannel::join when the world fails before it is complete.
class JoinFailed : public Error {
 public:
  explicit JoinFailed(WorldFailure failure)
      : Error(failure.kind(), failure.text), failure_(std::move(failure)) {}
  const WorldFailure& failure() const { return failure_; }

 private:
  WorldFailure failure_;
};

}  // namespace dpt
