// Launchers from whose variables a World can be read. Each function returns nothing if its launcher
// did not start this process, and throws ErrorKind::usage as detect_world does.
#pragma once

#include <optional>

#include "engine/processes/environment.h"
#include "engine/processes/world.h"

namespace dpt::launchers {

/// Reads the World of a process that `dpt --nproc` started.
std::optional<World> from_nproc(const Environment& environment);
/// Reads the World of torchrun, and of other launchers that set the same variables.
std::optional<World> from_torchrun(const Environment& environment);
std::optional<World> from_open_mpi(const Environment& environment);
std::optional<World> from_mpich(const Environment& environment);

}  // namespace dpt::launchers
