#include "app/cli/inherited_signals.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <iterator>

namespace dpt {
namespace {

constexpr int kSignals[] = {SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
bool g_is_ignored[std::size(kSignals)];

/// Runs before the initialisers of all libraries, including the sanitizers. Therefore it uses
/// system calls directly, which sanitizers do not intercept.
__attribute__((no_sanitize("address"), no_sanitize("thread"), no_sanitize("undefined"))) void
note_inherited() {
  unsigned long mask = 0;
  for (std::size_t i = 0; i < sizeof kSignals / sizeof kSignals[0]; ++i) {
    mask |= 1UL << static_cast<unsigned>(kSignals[i] - 1);
    // The kernel's layout: handler, flags, restorer and a mask of 64 signals.
    unsigned long action[4] = {};
    if (::syscall(SYS_rt_sigaction, kSignals[i], nullptr, action, 8) != 0) continue;
    g_is_ignored[i] = action[0] == reinterpret_cast<unsigned long>(SIG_IGN);
  }
  // Block the signals, so that they stay pending. In process 1 of a PID namespace, the kernel drops
  // signals that are neither blocked nor handled.
  ::syscall(SYS_rt_sigprocmask, SIG_BLOCK, &mask, nullptr, 8);
}

__attribute__((section(".preinit_array"), used)) void (*const g_note_inherited)() = note_inherited;

}  // namespace

void restore_inherited_signals() {
  for (std::size_t i = 0; i < std::size(kSignals); ++i) {
    ::signal(kSignals[i], g_is_ignored[i] ? SIG_IGN : SIG_DFL);
  }
}

}  // namespace dpt
