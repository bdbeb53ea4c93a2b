// Restores the signal settings that this process inherited.
#pragma once

namespace dpt {

/// Removes the handlers that libraries installed for stop signals when they were loaded. (Those of
/// libpsm2, which MPI libraries may load, undo nohup and print a backtrace on Ctrl-C.) Stop signals
/// are blocked from before the libraries are initialised until install_signal_handlers, so none is
/// lost. Call this first in main.
void restore_inherited_signals();

}  // namespace dpt
