// Requests to stop, from signals. A handler only sets a flag; the trainer agrees on a step
// boundary.
#pragma once

#include <cstdint>

namespace dpt {

enum class StopReason : std::uint8_t { none, interrupt, terminate, user, time_is_up };

/// SIGINT, SIGTERM and SIGUSR1 set the flag; a second SIGINT or SIGTERM ends the process at once
/// with 130 or 143.
void install_signal_handlers();

/// The first request so far. Callable from any thread.
StopReason requested_stop();

/// The exit code of a run that stopped for this reason, its checkpoint saved: 130, 143 or 75.
int exit_code_of(StopReason reason);
const char* name_of(StopReason reason);

}  // namespace dpt
