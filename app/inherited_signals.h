// Signals as the process that started this one left them.
#pragma once

namespace dpt {

/// Undoes what libraries did, when they were loaded, to the signals that ask for a stop: Debian
/// 13's Gloo brings libpsm2, whose handlers undo nohup and print a backtrace on Ctrl-C. These
/// signals are blocked until install_signal_handlers: those that come while the libraries are
/// initialised wait. Call this first in main.
void restore_inherited_signals();

}  // namespace dpt
