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

  /// Runs `body`, which is the start and the training, and returns its result. If a stop comes
  /// before the first step, prints a message and returns the stop's exit code. As soon as `body`
  /// can tell the other processes, it checks for a stop that came before the start.
  int guard(const std::function<int()>& body);
  /// Lets the phase report a stop to the other processes while this object exists.
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
  /// this call, a stop waits up to a second for a loop that does not poll; afterwards, it waits
  /// until the loop ends.
  void begin_changes() { watch_.reset(); }

 private:
  void set_processes(ProcessGroup* processes);
  void say_stopped(StopReason reason) const;
  /// Ends the process, because a loop has not polled for the stop. Never returns.
  void end_process(StopReason reason);

  bool speaks_;
  std::mutex mutex_;
  ProcessGroup* processes_ = nullptr;  // guarded by mutex_
  std::optional<StopWatch> watch_;
};

}  // namespace dpt
