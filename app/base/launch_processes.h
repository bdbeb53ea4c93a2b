// `--nproc N`: this process runs the same command as N processes on this machine, passes on their
// output, sends them its signals, and returns the exit code of the first failure.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "app/base/process_options.h"

namespace dpt {

/// Time limits for processes to end after another one has failed.
struct LaunchPatience {
  std::chrono::milliseconds before_term = std::chrono::seconds(10);
  /// Time after SIGTERM (and SIGCONT, for a suspended process) in which a process may save.
  std::chrono::milliseconds before_kill = std::chrono::seconds(60);
  /// True if the program unblocks kStopSignals when it can handle them, as dpt does. It is then
  /// started with these signals blocked, so that none is lost while it is loaded.
  bool unblocks_signals = false;
};

/// Returns true if `--nproc` is given and this process was not started by it. Throws
/// ErrorKind::usage for invalid options, and for --nproc under another launcher.
bool must_launch(const ProcessOptions& options);

/// Starts `count` processes of `program` and waits for all of them. `command` is their command
/// line, beginning with the name of the program. Sets environment variables from which each process
/// learns its World. Rank 0 uses the streams of this process. The output of the others, including
/// stdout, appears on stderr, each line after "[rank N] ".
///
/// Passes kStopSignals on to all processes, except signals that a terminal has already sent to them
/// or that are ignored. If this process is killed, the others get SIGTERM, or another stop signal
/// if SIGTERM is ignored. If a stop was requested (requested_stop) before the first process is
/// started, starts none and returns the exit code of the stop.
///
/// Returns the exit code of the first process with a code other than 0. If that code is 6, which
/// means that another process failed, returns the code of the first process that states a cause.
/// The code of a process that a signal ended is 128 + the signal's number. Throws ErrorKind::device
/// if the limits of the system allow no more processes, and ErrorKind::unexpected if a process
/// cannot be started for another reason. If it throws, it kills the processes that it has started.
int launch_processes(int count, const std::string& program, const std::vector<std::string>& command,
                     const LaunchPatience& patience = {});
/// Starts `count` processes of the running program in the same way, with unblocks_signals set.
int launch_processes(int count, const std::vector<std::string>& command);

}  // namespace dpt
