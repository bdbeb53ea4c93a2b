// Signals as the process that started this one left them.
#pragma once

namespace dpt {

/// Takes back what libraries made of the signals that ask for a stop when they were loaded: Debian
/// 13's Gloo brings libpsm2, whose handlers undo nohup and print a backtrace on Ctrl-C. Until
/// install_signal_handlers these signals are blocked: what comes while the libraries are
/// initialised waits. To be called first in main.
void restore_inherited_signals();

}  // namespace dpt
