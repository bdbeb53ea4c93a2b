// A command as one of the processes of a world, or alone.
#pragma once

#include <functional>

#include "app/commands.h"
#include "engine/training/process_group.h"

namespace dpt {

/// Finds out which process of how many this is, joins the others, and runs `body` with the group
/// (null: alone), whose result is the exit code. An error becomes known to all processes; on those
/// that did not make it, it is the first cause in the world.
int run_in_world(const ProcessOptions& options, const std::function<int(ProcessGroup*)>& body);

}  // namespace dpt
