// Requests to stop, from signals. A handler only sets a flag; the trainer agrees on a step
// boundary.
#pragma once

#include <cstdint>

#include "engine/collectives/communicator.h"

namespace dpt {

enum class StopReason : std::uint8_t { none, interrupt, terminate, hangup, user, time_is_up };

/// SIGINT, SIGTERM, SIGHUP and SIGUSR1 set the flag; a SIGINT or SIGTERM that comes 0.1 s or more
/// after the first of these two ends the process at once with 130 or 143. A second SIGHUP does not:
/// one terminal that closes sends several (the kernel's and the shell's). What `dpt --nproc` passes
/// on (sigqueue) is counted by itself: the process may have got the same signal as one of a group.
/// If SIGHUP is ignored (nohup), it stays ignored.
void install_signal_handlers();

/// The first request so far. Callable from any thread.
StopReason requested_stop();

/// Collective, once a rank has voted to stop: the reason of all, which is that of the first rank
/// that has one. A signal may have reached some processes only, and one clock is ahead.
StopReason agree_on_stop(Communicator& communicator, StopReason mine);

/// The exit code of a run that stopped for this reason, its checkpoint saved: 129, 130, 143 or
/// 75.
int exit_code_of(StopReason reason);
const char* name_of(StopReason reason);

}  // namespace dpt
