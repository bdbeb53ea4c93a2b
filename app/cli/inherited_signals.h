// Signals as the process that started this one left them.
#pragma once

namespace dpt {

/// Undoes what libraries did, when they were loaded, to the signals that ask for a stop. (The
/// handlers of libpsm2, which MPI libraries may bring, undo nohup and print a backtrace on Ctrl-C.)
/// These signals are blocked until install_signal_handlers: those that come while the libraries are
/// initialised wait. Call this first in main.
void restore_inherited_signals();

}  // namespace dpt
