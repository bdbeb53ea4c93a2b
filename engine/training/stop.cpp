#include "engine/training/stop.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>
#include <span>
#include <vector>

namespace dpt {
namespace {

// Signals belong to the process, so this is the one piece of global state.
std::atomic<int> g_signal{0};  // the first, which decides the exit code
// Milliseconds of the monotonic clock when the first SIGINT or SIGTERM came: sent to this process
// or its group, and passed on by a launcher that got it too, however late.
std::atomic<std::int64_t> g_interrupted_at{0}, g_passed_on_at{0};
static_assert(std::atomic<int>::is_always_lock_free &&
                  std::atomic<std::int64_t>::is_always_lock_free,
              "used in a signal handler");

/// `timeout` signals the program and then its process group, and supervisors send SIGINT and
/// SIGTERM in one go: within this time they are one request.
constexpr std::int64_t kOneRequestMs = 100;

std::int64_t now_ms() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);  // which a signal handler may call
  return std::int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000;
}

void on_signal(int number, siginfo_t* info, void*) {
  int expected = 0;
  g_signal.compare_exchange_strong(expected, number);
  // A closing terminal sends SIGHUP before SIGTERM, a job scheduler SIGUSR1: the first SIGTERM
  // after them is not impatience.
  if (number != SIGINT && number != SIGTERM) return;
  const std::int64_t now = now_ms();
  std::int64_t first = 0;
  auto& first_at = info->si_code == SI_QUEUE ? g_passed_on_at : g_interrupted_at;
  if (first_at.compare_exchange_strong(first, now)) return;
  if (now - first >= kOneRequestMs) _exit(128 + number);
}

}  // namespace

void install_signal_handlers() {
  struct sigaction action = {};
  action.sa_sigaction = on_signal;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESTART | SA_SIGINFO;
  for (const int number : {SIGINT, SIGTERM, SIGUSR1}) sigaction(number, &action, nullptr);
  struct sigaction before = {};
  sigaction(SIGHUP, nullptr, &before);
  if (before.sa_handler != SIG_IGN) sigaction(SIGHUP, &action, nullptr);
}

StopReason requested_stop() {
  switch (g_signal.load(std::memory_order_relaxed)) {
    case SIGINT:
      return StopReason::interrupt;
    case SIGTERM:
      return StopReason::terminate;
    case SIGHUP:
      return StopReason::hangup;
    case SIGUSR1:
      return StopReason::user;
    default:
      return StopReason::none;
  }
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
    case StopReason::time_is_up:
      return 75;
  }
  return 1;
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
  }
  return "?";
}

}  // namespace dpt
