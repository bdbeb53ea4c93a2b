// The time from the beginning of `dpt train` to its first step, during which a requested stop ends
// the command at once: there is nothing to save yet.
#pragma once

#include <functional>
#include <mutex>
#include <optional>

#include "engine/processes/process_group.h"
#include "engine/processes/stop.h"

namespace dpt {

/// Start phase of a command. Only one may exist at a time.
class StartPhase {
 public:
  /// `speaks`: true if this process prints messages; of several processes, only the first does.
  explicit StartPhase(bool speaks);
  ~StartPhase();
  StartPhase(const StartPhase&) = delete;

  /// Runs `body`, the start and the run itself, and returns its result. If a stop comes before the
  /// first step (also one that came before the start: `body` checks for it once it can tell the
  /// other processes), prints a message and returns the stop's exit code.
  int guard(const std::function<int()>& body);
  /// Reports a stop to the other processes during its lifetime.
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
  /// Marks the beginning of changes that a sudden end of the process would leave unfinished. Before
  /// it, the command waits up to a second for a loop that does not poll for a stop; after it, until
  /// the loop ends.
  void begin_changes() { watch_.reset(); }

 private:
  void set_processes(ProcessGroup* processes);
  void say_stopped(StopReason reason) const;
  /// Ends the process if a loop does not poll. Never returns.
  void end_process(StopReason reason);

  bool speaks_;
  std::mutex mutex_;
  ProcessGroup* processes_ = nullptr;  // guarded by mutex_
  std::optional<StopWatch> watch_;
};

}  // namespace dpt
