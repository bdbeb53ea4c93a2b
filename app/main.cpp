// dpt, the data-parallel trainer. Each command is in a command_*.cpp.
#include <unistd.h>

#include <cstdio>

#include "app/cli/cli.h"
#include "app/cli/inherited_signals.h"
#include "engine/processes/stop.h"
#include "kernels/base/lost_device.h"

int main(int argc, char** argv) {
  dpt::restore_inherited_signals();
  dpt::install_signal_handlers();
  const int code = dpt::run_cli(argc, argv);
  if (dpt::is_device_lost()) {
    std::fflush(nullptr);
    _exit(code);
  }
  return code;
}
