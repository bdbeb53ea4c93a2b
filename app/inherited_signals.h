// Signals as the process that started this one left them.
#pragma once

namespace dpt {

/// Takes back what libraries made of SIGHUP, SIGINT and SIGTERM when they were loaded: Debian 13's
/// Gloo brings libpsm2, whose handlers undo nohup and print a backtrace on Ctrl-C. To be called
/// first in main.
void restore_inherited_signals();

}  // namespace dpt
