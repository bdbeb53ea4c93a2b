// dpt: the data-parallel trainer. Everything is in the commands (command_*.cpp).
#include "app/cli.h"
#include "app/inherited_signals.h"
#include "engine/training/stop.h"

int main(int argc, char** argv) {
  dpt::restore_inherited_signals();
  dpt::install_signal_handlers();
  return dpt::run_cli(argc, argv);
}
