#include "engine/processes/stop.h"

#include <semaphore.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "kernels/base/error.h"
#include "kernels/base/start_thread.h"
#include "kernels/base/stop_request.h"

namespace dpt {
namespace {

// These variables are global, because signals belong to the process.
std::atomic<int> g_signal{0};  // the first signal, which decides the exit code
// Times of the first SIGINT or SIGTERM, in milliseconds of the monotonic clock. Signals sent to
// this process or its group are counted apart from those that `dpt --nproc` passes on, because the
// two may be copies of one signal, however late the second arrives.
std::atomic<std::int64_t> g_interrupted_at{0}, g_passed_on_at{0};
static_assert(std::atomic<int>::is_always_lock_free &&
                  std::atomic<std::int64_t>::is_always_lock_free,
              "used in a signal handler");
/// Wakes the StopWatch, if there is one.
struct Wake {
  sem_t semaphore;
  Wake() { sem_init(&semaphore, 0, 0); }
};
Wake& wake() {
  static Wake only;
  return only;
}
std::atomic<Wake*> g_wake{nullptr};

/// Window in which several signals count as one request: `timeout` signals the program and then its
/// process group, and supervisors send SIGINT and SIGTERM in quick succession.
constexpr std::int64_t kOneRequestMs = 100;

std::int64_t now_ms() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);  // safe in a signal handler
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

/// Records a signal. Also called by a signal handler.
void note_signal(int number) {
  int expected = 0;
  g_signal.compare_exchange_strong(expected, number);
  stop_request::is_requested = true;
  if (Wake* waiting = g_wake) sem_post(&waiting->semaphore);
}

void on_signal(int number, siginfo_t* info, void*) {
  const int error = errno;
  note_signal(number);
  errno = error;
  // A closing terminal sends SIGHUP before SIGTERM, and a job scheduler sends SIGUSR1 before it.
  // Therefore the first SIGTERM after these signals does not end the process at once.
  if (number != SIGINT && number != SIGTERM) return;
  const std::int64_t now = now_ms();
  std::int64_t first = 0;
  auto& first_at = info->si_code == SI_QUEUE ? g_passed_on_at : g_interrupted_at;
  if (first_at.compare_exchange_strong(first, now)) return;
  if (now - first >= kOneRequestMs) _exit(128 + number);
}

void end_at_once(int number) {
  _exit(128 + number);
}

StopReason reason_of(int number) {
  switch (number) {
    case SIGINT:
      return StopReason::interrupt;
    case SIGTERM:
      return StopReason::terminate;
    case SIGHUP:
      return StopReason::hangup;
    case SIGUSR1:
      return StopReason::user;
    case SIGUSR2:
      return StopReason::user2;
    case SIGXCPU:
      return StopReason::cpu_time;
    default:
      return StopReason::none;
  }
}

}  // namespace

bool is_signal_ignored(int number) {
  struct sigaction action = {};
  sigaction(number, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  sigset_t handled;
  sigemptyset(&handled);
  for (const int number : kStopSignals) {
    sigaddset(&handled, number);
    if (!is_signal_ignored(number)) sigaction(number, &action, nullptr);
  }
  pthread_sigmask(SIG_UNBLOCK, &handled, nullptr);
}

void let_signals_end_process() {
  struct sigaction action = {};
  // The kernel takes no default action for signals to the first process of a PID namespace.
  action.sa_handler = getpid() == 1 ? end_at_once : SIG_DFL;
  for (const int number : kStopSignals) {
    if (!is_signal_ignored(number)) sigaction(number, &action, nullptr);
  }
  if (const int noted = g_signal) {
    raise(noted);
    _exit(128 + noted);
  }
}

void request_stop(StopReason reason) {
  for (const int number : kStopSignals) {
    if (reason_of(number) == reason) note_signal(number);
  }
}

StopWatch::StopWatch(std::chrono::milliseconds patience, std::function<void(StopReason)> on_stop)
    : patience_(patience), on_stop_(std::move(on_stop)) {
  g_wake = &wake();
  try {
    thread_ = start_thread("the watch for signals", [this] { watch(); });
  } catch (const Error&) {
    // Requests work without the thread, but on_stop_ is not called.
  }
}

StopWatch::~StopWatch() {
  {
    const std::lock_guard lock(mutex_);
    has_ended_ = true;
  }
  ended_.notify_all();
  sem_post(&wake().semaphore);
  if (thread_.joinable()) thread_.join();
}

void StopWatch::watch() {
  std::unique_lock lock(mutex_);
  while (!has_ended_ && requested_stop() == StopReason::none) {
    lock.unlock();
    sem_wait(&wake().semaphore);
    lock.lock();
  }
  if (requested_stop() == StopReason::none) return;
  // If patience is zero, the function is called even if the work has ended meanwhile.
  if (patience_.count() > 0 && ended_.wait_for(lock, patience_, [this] { return has_ended_; })) {
    return;
  }
  lock.unlock();
  on_stop_(requested_stop());
}

StopReason requested_stop() {
  return reason_of(g_signal.load(std::memory_order_relaxed));
}

StopReason agree_on_stop(Communicator& communicator, StopReason mine) {
  const auto own = static_cast<std::uint8_t>(mine);
  std::vector<std::uint8_t> all(static_cast<std::size_t>(communicator.size()));
  communicator.all_gather(std::as_bytes(std::span<const std::uint8_t>(&own, 1)),
                          std::as_writable_bytes(std::span<std::uint8_t>(all)));
  for (const std::uint8_t reason : all) {
    if (reason != 0) return static_cast<StopReason>(reason);
  }
  return StopReason::time_is_up;
}

int exit_code_of(StopReason reason) {
  switch (reason) {
    case StopReason::none:
      return 0;
    case StopReason::interrupt:
      return 128 + SIGINT;
    case StopReason::terminate:
      return 128 + SIGTERM;
    case StopReason::hangup:
      return 128 + SIGHUP;
    case StopReason::user:
    case StopReason::user2:
    case StopReason::cpu_time:
    case StopReason::time_is_up:
      return kStoppedExitCode;
  }
  return 1;
}

StopReason stop_of_exit_code(int exit_code) {
  switch (exit_code) {
    case 128 + SIGINT:
      return StopReason::interrupt;
    case 128 + SIGTERM:
      return StopReason::terminate;
    case 128 + SIGHUP:
      return StopReason::hangup;
    case kStoppedExitCode:
      return StopReason::user;
    default:
      return StopReason::none;
  }
}

std::string acknowledgement_of(StopReason reason) {
  std::string text =
      fmt::format("stopping as soon as the state can be saved ({})", name_of(reason));
  if (reason == StopReason::interrupt || reason == StopReason::terminate) {
    text += fmt::format("; {} ends the run at once, without a checkpoint",
                        reason == StopReason::interrupt ? "Ctrl-C again" : "a second SIGTERM");
  }
  return text;
}

const char* name_of(StopReason reason) {
  switch (reason) {
    case StopReason::none:
      return "none";
    case StopReason::interrupt:
      return "SIGINT";
    case StopReason::terminate:
      return "SIGTERM";
    case StopReason::hangup:
      return "SIGHUP";
    case StopReason::user:
      return "SIGUSR1";
    case StopReason::time_is_up:
      return "--max-time";
    case StopReason::user2:
      return "SIGUSR2";
    case StopReason::cpu_time:
      return "SIGXCPU";
  }
  return "?";
}

}  // namespace dpt
