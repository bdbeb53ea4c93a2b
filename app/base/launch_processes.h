// `--nproc N`: this process starts N of the same command on this machine, passes on their messages
// and the signals that it gets, and ends with what they ended with.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "app/base/process_options.h"

namespace dpt {

/// Where one process has failed, the others are told so by dpt itself: what is given to those that
/// do not end.
struct LaunchPatience {
  std::chrono::milliseconds before_term = std::chrono::seconds(10);
  /// After SIGTERM (and SIGCONT, for one that is suspended): it may save.
  std::chrono::milliseconds before_kill = std::chrono::seconds(60);
  /// True if the program unblocks kStopSignals itself when it handles them, as dpt does. They then
  /// begin blocked, so that none is lost while the program is loaded.
  bool unblocks_signals = false;
};

/// Whether this process is to start others, rather than to be one: `--nproc` is given, and this is
/// none of those. Throws ErrorKind::usage where another launcher has started it as one of several,
/// and for options of processes that cannot be.
bool must_launch(const ProcessOptions& options);

/// Starts `count` processes of `program` with the words of `command`, the first of which is its
/// name, and waits for all of them. World has what their environment says. Rank 0 has the streams
/// of this process; what the others write, to stdout too, appears on stderr line by line after
/// "[rank N] ".
///
/// Passes kStopSignals on to all processes, except those that a terminal has already sent to them
/// and those that are ignored. No process outlives this one: if this one is killed, the others get
/// SIGTERM, or another stop signal if SIGTERM is ignored. A stop that was requested before the
/// first process is started (requested_stop) is the result.
///
/// The result is the exit code of the first that ended with another one than 0, or where that only
/// says that another process failed (6), the first of theirs that says why; that of a process that
/// a signal ended is 128 + its number. Throws ErrorKind::unexpected where a process cannot be
/// started; those before it are killed.
int launch_processes(int count, const std::string& program, const std::vector<std::string>& command,
                     const LaunchPatience& patience = {});
/// The same with the program that runs.
int launch_processes(int count, const std::vector<std::string>& command);

}  // namespace dpt
