// The command line of `dpt`.
#pragma once

namespace dpt {

/// Runs a command line. The one place where an Error becomes an exit code.
int run_cli(int argc, const char* const* argv);

}  // namespace dpt
