// dpt: the data-parallel trainer. Everything is in the commands (command_*.cpp).
#include "app/cli.h"

int main(int argc, char** argv) {
  return dpt::run_cli(argc, argv);
}
