// The command line of `dpt`.
#pragma once

#include "app/help/command_tree.h"

namespace dpt {

/// Runs a command line and returns the exit code. Only this function converts Errors to exit codes.
int run_cli(int argc, const char* const* argv);

/// Returns the tree of all commands.
Command all_commands();

}  // namespace dpt
