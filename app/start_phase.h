// The time from the beginning of `dpt train` to its first step, in which a stop that is requested
// ends the command at once: there is nothing to save yet.
#pragma once

#include <functional>
#include <mutex>
#include <optional>

#include "engine/training/process_group.h"
#include "engine/training/stop.h"

namespace dpt {

/// One at a time.
class StartPhase {
 public:
  /// `speaks`: this process tells the user; of several, the first.
  explicit StartPhase(bool speaks);
  ~StartPhase();
  StartPhase(const StartPhase&) = delete;

  /// Runs `body`, the start and the run itself, and returns its result. A stop before the first
  /// step ends it with a message and the stop's exit code.
  int guard(const std::function<int()>& body);
  /// While it lives, the other processes are told of a stop.
  class InWorld {
   public:
    InWorld(StartPhase& phase, ProcessGroup* processes) : phase_(phase) {
      phase_.set_processes(processes);
    }
    ~InWorld() { phase_.set_processes(nullptr); }
    InWorld(const InWorld&) = delete;

   private:
    StartPhase& phase_;
  };
  /// Until now the process has changed nothing that its sudden end would leave unfinished: a loop
  /// that does not poll for a stop is not waited for longer than a second. From now on it is.
  void begin_changes() { watch_.reset(); }

 private:
  void set_processes(ProcessGroup* processes);
  void say_stopped(StopReason reason) const;
  /// For a loop that does not poll. Never returns.
  void end_process(StopReason reason);

  bool speaks_;
  std::mutex mutex_;
  ProcessGroup* processes_ = nullptr;  // guarded by mutex_
  std::optional<StopWatch> watch_;
};

}  // namespace dpt
