// Checks that a run of dpt can have the counters of a checkpoint, and that its tensors can be
// saved.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoints/checkpoint_content.h"
#include "engine/graph/plan.h"

namespace dpt {

/// Throws ErrorKind::data naming file, key, what was expected and found. Checks what follows from
/// the file alone; what depends on the run (its samples, its steps an epoch) is checked where the
/// run is resumed.
void check_state(const std::string& path, const CheckpointHeader& header);

/// Throws ErrorKind::usage if save_checkpoint would refuse the name of a tensor of the plan, or of
/// one of the optimizer's `states` for it. Call this before a run has anything to lose.
void check_tensor_names(const Plan& plan, const std::vector<std::string>& states);

}  // namespace dpt
