// Checks that a checkpoint's counters are possible, and that a checkpoint can hold a run's tensors.
#pragma once

#include <string>
#include <vector>

#include "engine/checkpoints/checkpoint_content.h"
#include "engine/graph/plan.h"

namespace dpt {

/// Throws ErrorKind::data, naming file, key, expected and found value, for counters that no run can
/// have. Checks only what follows from the file alone. Checks that depend on the run (its samples,
/// its steps per epoch) are made when the run is resumed.
void check_state(const std::string& path, const CheckpointHeader& header);

/// Throws ErrorKind::usage if save_checkpoint would refuse the name of a tensor: one of the plan's,
/// or one of the optimizer's `states` for such a tensor. Call this at the start of a run, before
/// there is work to lose.
void check_tensor_names(const Plan& plan, const std::vector<std::string>& states);

}  // namespace dpt
