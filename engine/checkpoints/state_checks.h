// Whether the counters of a checkpoint are ones that a run of dpt can have.
#pragma once

#include <string>

#include "engine/checkpoints/checkpoint.h"

namespace dpt {

/// Throws ErrorKind::data naming file, key, what was expected and found. Checks what follows from
/// the file alone; what depends on the run (its samples, its steps an epoch) is checked where the
/// run is resumed.
void check_state(const std::string& path, const CheckpointHeader& header);

}  // namespace dpt
