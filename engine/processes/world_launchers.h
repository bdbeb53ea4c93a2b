// The launchers whose variables a World can be read from. Each function returns nothing if its
// launcher did not start this process, and throws ErrorKind::usage as detect_world does.
#pragma once

#include <optional>

#include "engine/processes/environment.h"
#include "engine/processes/world.h"

namespace dpt::launchers {

/// dpt's own children.
std::optional<World> from_nproc(const Environment& environment);
/// torchrun, and what sets the same variables.
std::optional<World> from_torchrun(const Environment& environment);
std::optional<World> from_open_mpi(const Environment& environment);
std::optional<World> from_mpich(const Environment& environment);

}  // namespace dpt::launchers
