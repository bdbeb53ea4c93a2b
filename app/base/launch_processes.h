// `--nproc N`: this process starts N of the same command on this machine, passes on their messages
// and the signals that it gets, and ends with the exit code of the first cause.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "app/base/process_options.h"

namespace dpt {

/// Times that are left to processes after another one has failed, which dpt itself tells them.
struct LaunchPatience {
  std::chrono::milliseconds before_term = std::chrono::seconds(10);
  /// Time after SIGTERM (and SIGCONT, for a suspended process), in which a process may save.
  std::chrono::milliseconds before_kill = std::chrono::seconds(60);
  /// True if the program unblocks kStopSignals itself when it handles them, as dpt does. They then
  /// begin blocked, so that none is lost while the program is loaded.
  bool unblocks_signals = false;
};

/// Returns true if this process must start others: `--nproc` is given, and this is none of those.
/// Throws ErrorKind::usage if another launcher has started it as one of several, and for invalid
/// options of processes.
bool must_launch(const ProcessOptions& options);

/// Starts `count` processes of `program` with the words of `command`, the first of which is its
/// name, and waits for all of them. Sets the variables in the environment of this process that tell
/// each its World. Rank 0 has the streams of this process; what the others write, to stdout too,
/// appears on stderr line by line after "[rank N] ".
///
/// Passes kStopSignals on to all processes, except those that a terminal has already sent to them
/// and those that are ignored. No process outlives this one: if this one is killed, the others get
/// SIGTERM, or another stop signal if SIGTERM is ignored. A stop that was requested before the
/// first process is started (requested_stop) is the result.
///
/// Returns the exit code of the first that ended with a code other than 0, or if that only says
/// that another process failed (6), of the first that says why; for a process that a signal ended,
/// 128 + its number. Throws ErrorKind::device if the limits of the system allow no more processes,
/// ErrorKind::unexpected if one cannot be started for another reason; those before it are killed.
int launch_processes(int count, const std::string& program, const std::vector<std::string>& command,
                     const LaunchPatience& patience = {});
/// Starts `count` processes of the program that runs.
int launch_processes(int count, const std::vector<std::string>& command);

}  // namespace dpt
