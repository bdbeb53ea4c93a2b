// Slurm: the tasks of a step that srun started.
#pragma once

#include <optional>

#include "engine/processes/environment.h"
#include "engine/processes/world.h"

namespace dpt::launchers {

/// Reads the World of a task that srun started, like the functions of world_launchers.h.
std::optional<World> from_slurm(const Environment& environment);

/// Throws in a Slurm allocation that has several tasks.
void check_slurm_batch(const Environment& environment);

}  // namespace dpt::launchers
