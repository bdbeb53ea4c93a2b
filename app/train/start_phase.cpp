#include "app/train/start_phase.h"

#include <unistd.h>

#include <cstdio>

#include <fmt/format.h>

#include "app/base/console.h"
#include "kernels/base/stop_request.h"

namespace dpt {
namespace {

/// Time limit for loops that poll for a stop. They end within milliseconds, but freeing what was
/// read takes longer.
constexpr std::chrono::milliseconds kPatience{1000};

}  // namespace

StartPhase::StartPhase(bool speaks) : speaks_(speaks) {
  stop_request::is_starting = true;
  watch_.emplace(kPatience, [this](StopReason reason) { end_process(reason); });
}

StartPhase::~StartPhase() {
  stop_request::is_starting = false;
}

int StartPhase::guard(const std::function<int()>& body) {
  try {
    return body();
  } catch (const StopRequested&) {
    watch_.reset();
    say_stopped(requested_stop());
    return exit_code_of(requested_stop());
  }
}

void StartPhase::set_processes(ProcessGroup* processes) {
  const std::lock_guard lock(mutex_);
  processes_ = processes;
}

void StartPhase::say_stopped(StopReason reason) const {
  if (speaks_) {
    say(fmt::format("stopped before the first step ({}): there was nothing to save",
                    name_of(reason)));
  }
}

void StartPhase::end_process(StopReason reason) {
  say_stopped(reason);
  std::fflush(stdout);
  const std::lock_guard lock(mutex_);
  if (processes_) processes_->report(StopRequested());
  _exit(exit_code_of(reason));
}

}  // namespace dpt
