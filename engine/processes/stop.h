// Requests to stop, from signals. A handler only sets flags. While a run starts, loops poll them
// (kernels/base/stop_request.h); during training, the trainer agrees on a step boundary.
#pragma once

#include <signal.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "engine/collectives/communicator.h"

namespace dpt {

/// Reason for a stop. The values travel between the processes of a run.
enum class StopReason : std::uint8_t {
  none,
  interrupt,
  terminate,
  hangup,
  user,
  time_is_up,
  user2,
  cpu_time
};

/// Signals that ask a run to stop. Batch systems use SIGUSR1 and SIGUSR2 to announce their own
/// signals, and SIGXCPU to announce the end of the CPU time (ulimit -t).
inline constexpr std::array kStopSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU};

/// Returns true if a signal is ignored, as after nohup or trap ''.
bool is_signal_ignored(int number);

/// Handles and unblocks kStopSignals. Each sets stop_request::is_requested; a SIGINT or SIGTERM
/// that arrives 0.1 s or more after the first of these two ends the process at once with 130 or
/// 143. A second SIGHUP does not, because a closing terminal sends several (the kernel's and the
/// shell's). Signals that `dpt --nproc` passes on (sigqueue) are counted separately, because the
/// process may have received the same signal as a member of a group. Ignored signals (trap '' INT,
/// nohup, a background job of a script) stay ignored.
void install_signal_handlers();

/// Restores the default action of the signals, for commands that do not poll for requests. A signal
/// that arrived since install_signal_handlers ends the process now. If there is no default action
/// (process 1 of a container), a signal ends the process with 128 + its number.
void let_signals_end_process();

/// Returns the first request so far. Callable from any thread.
StopReason requested_stop();
/// Requests a stop as the reason's signal would, unless one was already requested. Does nothing for
/// reasons without a signal. Callable from any thread.
void request_stop(StopReason reason);

/// Watch that calls a function once, on a separate thread, `patience` after a stop is requested (or
/// after construction if it was requested before), unless this object is destroyed before that. If
/// `patience` is zero, a requested stop always leads to the call, at the latest before the
/// destructor returns. Only one StopWatch may exist at a time. If the system cannot start a thread,
/// the function is never called.
class StopWatch {
 public:
  StopWatch(std::chrono::milliseconds patience, std::function<void(StopReason)> on_stop);
  ~StopWatch();
  StopWatch(const StopWatch&) = delete;
  StopWatch& operator=(const StopWatch&) = delete;

 private:
  void watch();

  std::chrono::milliseconds patience_;
  std::function<void(StopReason)> on_stop_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool has_ended_ = false;  // guarded by mutex_
  std::thread thread_;
};

/// Returns, on all ranks, the reason of the first rank that has one. Collective; called once a rank
/// has voted to stop. The reasons of ranks may differ: a signal may have reached only some of the
/// processes, and their clocks differ.
StopReason agree_on_stop(Communicator& communicator, StopReason mine);

/// Exit code of a run that was stopped and can be resumed, unless the signal that stopped it has
/// its own exit code.
inline constexpr int kStoppedExitCode = 75;
/// Returns the exit code of a run that stopped for this reason: 129, 130, 143 or 75.
int exit_code_of(StopReason reason);
/// Returns the reason that has this exit code; none for the codes of failures.
StopReason stop_of_exit_code(int exit_code);
const char* name_of(StopReason reason);
/// Returns the line for the user when a stop is requested during training: the reason, and the
/// effect of a second signal.
std::string acknowledgement_of(StopReason reason);

}  // namespace dpt
