// dpt, the data-parallel trainer. Each command is in a command_*.cpp.
#include "app/cli/cli.h"
#include "app/cli/inherited_signals.h"
#include "engine/processes/stop.h"

int main(int argc, char** argv) {
  dpt::restore_inherited_signals();
  dpt::install_signal_handlers();
  return dpt::run_cli(argc, argv);
}
